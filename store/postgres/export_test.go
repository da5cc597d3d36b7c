package postgres

// RangeSize is how many ids one statement of a walk looks at.
const RangeSize = rangeSize

// Text returns a statement as it is sent.
func (s *Store) Text(name string) string { return s.text(name) }
