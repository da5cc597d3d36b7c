//go:build !race

package sqlite_test

// large is the size of a batch that takes a few milliseconds to store.
const large = 1000
