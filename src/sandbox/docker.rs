//! x
// images
