package consumer

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
)

// blockSize is how many neighboring ids a block has. The store reads one block in some milliseconds.
const blockSize = 10_000

// touched remembers the blocks of ids of which a run has asked the store for tasks. Only tasks of these blocks can be
// running under the run. A million tasks with consecutive ids are a hundred blocks.
type touched struct {
	mu     sync.Mutex
	blocks map[int64]struct{}
}

// add records tickets that the run is about to claim.
func (t *touched) add(tickets []message.Ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.blocks == nil {
		t.blocks = make(map[int64]struct{})
	}
	for _, ticket := range tickets {
		t.blocks[int64(ticket.Task)/blockSize] = struct{}{}
	}
}

// list returns the blocks in the order of their ids, starting at a random one, so that workers that look at the same
// time read different blocks.
func (t *touched) list() []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	blocks := make([]int64, 0, len(t.blocks))
	for block := range t.blocks {
		blocks = append(blocks, block)
	}
	slices.Sort(blocks)
	if len(blocks) == 0 {
		return nil
	}
	first := rand.IntN(len(blocks))
	return append(blocks[first:], blocks[:first]...)
}

// ids returns the ids of a block as those above after, up to through.
func ids(block int64) (after, through holdfast.TaskID) {
	return holdfast.TaskID(block*blockSize - 1), holdfast.TaskID((block+1)*blockSize - 1)
}
