//! Faults that users of comparable systems reported in public, each as the kind that it is an
//! example of. The numbers are those of the collection that they were retold from.

mod hostile;

pub(crate) mod libraries;

mod output;

mod values;
