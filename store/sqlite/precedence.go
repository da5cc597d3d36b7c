package sqlite

import (
	"errors"
	"os"
	"sync"
	"time"
)

// precedence lets the owner of the file write before other processes. SQLite does not order the processes that wait for
// its lock, and the writes of a process that enqueues many tasks last much longer than those of the owner. Without
// precedence, the owner would get the lock seldom and for a short time.
//
// If the owner has to wait for the lock of SQLite, it takes precedence: a second lock, on the file of the write-ahead
// log, which SQLite itself never locks. It keeps precedence for twice as long as it had to wait. Meanwhile other
// processes do not begin to write. So the owner gets more than half of the time, however many processes write. If the
// owner ends, the system releases the lock.
type precedence struct {
	file  *os.File // the write-ahead log of the guard; nil until it is open
	mu    sync.Mutex
	held  bool
	until time.Time // end of the precedence, if it is known
	timer *time.Timer
}

// errPrecedence means that the owner of the file takes precedence. Callers handle it like a lock of another process.
var errPrecedence = errors.New("the process that serves the file writes first")

// maxPrecedence limits how long the owner keeps precedence after it has got the lock.
const maxPrecedence = 200 * time.Millisecond

// take takes precedence. If another process is checking the lock, take does nothing, and the next call succeeds.
func (p *precedence) take() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Time{}
	if !p.held {
		p.held = lockFile(p.file)
	}
}

// keep lets the precedence, if this process has it, end in the given time. It does not shorten the precedence.
func (p *precedence) keep(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.held || !p.until.IsZero() {
		return
	}
	d = min(d, maxPrecedence)
	p.until = time.Now().Add(d)
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.end)
	} else {
		p.timer.Reset(d)
	}
}

// end ends the precedence if its time has come.
func (p *precedence) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held && !p.until.IsZero() && !time.Now().Before(p.until) {
		unlockFile(p.file)
		p.held = false
	}
}

// taken reports whether another process takes precedence.
func (p *precedence) taken() bool { return p.file != nil && lockedElsewhere(p.file) }
