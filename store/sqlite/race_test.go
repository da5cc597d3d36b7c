//go:build race

package sqlite_test

// large is a batch that takes a few milliseconds to store. The race detector makes everything fifty times slower.
const large = 20
