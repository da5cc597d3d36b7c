//go:build race

package sqlite_test

// large is the size of a batch that takes a few milliseconds to store. The race detector makes the store fifty times
// slower.
const large = 20
