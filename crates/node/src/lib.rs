//! All sandboxes of one machine: admission, templates, image cache, data-plane listener.
