//go:build !race

package sqlite_test

// large is a batch that takes a few milliseconds to store.
const large = 1000
