//go:build race

package queue_test

// manySubtasks is the size of a batch of several pages. The race detector makes a file fifty times slower.
const manySubtasks = 1200
