//go:build !race

package queue_test

// manySubtasks is the size of a batch of several pages.
const manySubtasks = 2500
