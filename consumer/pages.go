package consumer

import "sync"

// pages numbers the pages of a worker from 1, and records up to which page all pages are finished.
type pages struct {
	mu      sync.Mutex
	taken   int64
	settled int64         // every page up to this one is finished
	open    map[int64]int // number of unfinished tasks, by page
}

func newPages() *pages { return &pages{open: make(map[int64]int)} }

// begin opens a page with n unfinished tasks and returns its number.
func (p *pages) begin(n int) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken++
	p.open[p.taken] = n
	return p.taken
}

// finish records that n tasks of an open page are finished: their results are committed, or the worker did not claim
// them.
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

// cursors returns the numbers of the newest page, and of the last page up to which all pages are finished.
func (p *pages) cursors() (taken, settled int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken, p.settled
}
