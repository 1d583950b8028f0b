//! The public REST API: bodies of requests and answers as clients send and read them.
