use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Least that is ever handed out while something is left, bytes: less would be mostly frame headers.
const TAKE_LEN_MIN: usize = 4 << 10;

/// Bounds the bytes that wait in this process to be sent, all streams together.
///
/// A stream takes from it only when its own window and the connection's let the bytes go at once, so a client that reads slowly
/// holds none of it; only a host that does not read the channel at all can use it up, and then nobody can send anyway.
pub struct Budget {
    left: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
}

/// Bytes taken from a budget; given back when dropped.
pub(super) struct Held {
    budget: Rc<Budget>,
    len: usize,
}

impl Budget {
    /// A budget of so many bytes, at least 4 KiB.
    pub fn new(len: usize) -> Rc<Self> {
        Rc::new(Self { left: Cell::new(len.max(TAKE_LEN_MIN)), waiting: RefCell::default() })
    }

    /// Takes up to `want` bytes, but not next to nothing; waits while too little is left.
    pub(super) fn poll_take(self: &Rc<Self>, want: usize, cx: &Context<'_>) -> Poll<Held> {
        let left = self.left.get();
        if left < want.min(TAKE_LEN_MIN) {
            self.waiting.borrow_mut().push(cx.waker().clone());
            return Poll::Pending;
        }
        let len = want.min(left);
        self.left.set(left - len);
        Poll::Ready(Held { budget: self.clone(), len })
    }
}

impl Held {
    /// Bytes held.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Gives all but `len` bytes back.
    pub(super) fn shrink(&mut self, len: usize) {
        let back = self.len.saturating_sub(len);
        self.len -= back;
        self.budget.give_back(back);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.give_back(self.len);
    }
}

impl Budget {
    fn give_back(&self, len: usize) {
        self.left.set(self.left.get() + len);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(budget: &Rc<Budget>, want: usize) -> Option<Held> {
        match budget.poll_take(want, &Context::from_waker(Waker::noop())) {
            Poll::Ready(held) => Some(held),
            Poll::Pending => None,
        }
    }

    #[test]
    fn what_is_dropped_comes_back() {
        let budget = Budget::new(10_000);
        let first = take(&budget, 9_000).unwrap();
        assert!(take(&budget, 5_000).is_none());
        assert_eq!(take(&budget, 500).unwrap().len(), 500);
        drop(first);
        assert_eq!(take(&budget, 20_000).unwrap().len(), 10_000);
    }

    #[test]
    fn shrinking_gives_the_rest_back() {
        let budget = Budget::new(10_000);
        let mut held = take(&budget, 10_000).unwrap();
        held.shrink(10);
        assert_eq!(take(&budget, 10_000).unwrap().len(), 9_990);
    }
}
