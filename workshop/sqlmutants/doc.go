// Package sqlmutants checks that a test fails if a condition is lost from an SQL statement. It drops one operand of an
// and or an or at a time, runs the tests of the role on SQLite, and reports the mutants that survive.
//
// Conditions are those of where, on, having, filter, case and iif, and selected values with and or or. The statement
// files stay unchanged, because the tests are built with an overlay.
package sqlmutants
