use super::checks::{Check, Status};
use crate::printer::{Table, View};
use serde_json::{Value, json};

/// All checks.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) checks: Vec<Check>,
}

impl Report {
    /// The worst of all checks.
    pub(super) fn worst(&self) -> Status {
        self.checks.iter().map(|check| check.status).max().unwrap_or(Status::Ok)
    }

    fn verdict(&self) -> &'static str {
        match self.worst() {
            Status::Ok => "This machine runs sandboxes.",
            Status::Warn => "This machine runs sandboxes; see the warnings.",
            Status::Fail => "The server cannot run here yet; see what failed.",
        }
    }
}

impl View for Report {
    fn table(&self) -> String {
        let mut table = Table::new(&["CHECK", "STATUS", "DETAIL"]);
        for check in &self.checks {
            let status = match check.status {
                Status::Ok => "ok",
                Status::Warn => "warn",
                Status::Fail => "FAIL",
            };
            table.row([check.name, status, &check.detail]);
        }
        let mut fixes = Table::new(&["TO FIX", ""]);
        for check in &self.checks {
            if let Some(fix) = &check.fix {
                fixes.row([check.name, fix]);
            }
        }
        let some = self.checks.iter().any(|check| check.fix.is_some());
        let fixes = if some { format!("\n{}", fixes.render()) } else { String::new() };
        format!("{}{fixes}\n{}\n", table.render(), self.verdict())
    }

    fn json(&self) -> Value {
        json!({ "status": self.worst(), "checks": self.checks })
    }

    fn ids(&self) -> Vec<String> {
        self.checks.iter().filter(|check| check.status == Status::Fail).map(|check| check.name.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixes_stand_below_the_table() {
        let check = |name, status, fix: Option<&str>| Check {
            name,
            status,
            detail: "d".to_owned(),
            fix: fix.map(str::to_owned),
        };
        let report = Report { checks: vec![check("a", Status::Ok, None), check("b", Status::Fail, Some("do it"))] };
        let text = report.table();
        assert!(text.contains("b      FAIL    d\n") && text.contains("b       do it\n"), "{text}");
        assert_eq!(report.json()["status"], "fail");
        assert_eq!(report.ids(), ["b"]);
    }
}
