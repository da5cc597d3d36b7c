package consumer

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
)

// rangeSize is the number of ids in an id range. The store reads one range in a few milliseconds.
const rangeSize = 10_000

// idRanges is the set of id ranges in which a worker has claimed tasks. Only tasks in these ranges can be running under
// the worker. A million tasks with consecutive ids are in a hundred ranges. It is safe for concurrent use.
type idRanges struct {
	mu     sync.Mutex
	ranges map[int64]struct{}
}

// add adds the ranges of the tickets.
func (t *idRanges) add(tickets []message.Ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ranges == nil {
		t.ranges = make(map[int64]struct{})
	}
	for _, ticket := range tickets {
		t.ranges[int64(ticket.Task)/rangeSize] = struct{}{}
	}
}

// list returns the ranges in the order of their ids. It starts at a random range, so that workers that scan at the same
// time read different ranges.
func (t *idRanges) list() []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	ranges := make([]int64, 0, len(t.ranges))
	for idRange := range t.ranges {
		ranges = append(ranges, idRange)
	}
	slices.Sort(ranges)
	if len(ranges) == 0 {
		return nil
	}
	first := rand.IntN(len(ranges))
	return append(ranges[first:], ranges[:first]...)
}

// rangeBounds returns the bounds of a range. Its ids are greater than after and at most through.
func rangeBounds(block int64) (after, through holdfast.TaskID) {
	return holdfast.TaskID(block*rangeSize - 1), holdfast.TaskID((block+1)*rangeSize - 1)
}
