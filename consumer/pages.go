package consumer

import "sync"

// pages numbers the pages of a run and knows how far they are finished.
type pages struct {
	mu      sync.Mutex
	taken   int64
	settled int64         // every page up to this one is finished
	open    map[int64]int // tasks of a page whose results are not committed
}

func newPages() *pages { return &pages{open: make(map[int64]int)} }

// begin opens a page of which at most n tasks will be claimed.
func (p *pages) begin(n int) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken++
	p.open[p.taken] = n
	return p.taken
}

// finish takes n tasks off an open page: their results are committed, or they were never ours.
func (p *pages) finish(page int64, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[page] -= n; p.open[page] > 0 {
		return
	}
	delete(p.open, page)
	for p.settled < p.taken {
		if _, open := p.open[p.settled+1]; open {
			return
		}
		p.settled++
	}
}

func (p *pages) cursors() (taken, settled int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken, p.settled
}
