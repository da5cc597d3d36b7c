package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
)

// guard knows the files beside the database that SQLite opened. Their names end in -wal and -shm. The write-ahead log
// has commits that the database file does not have yet, so a commit to a deleted log is lost when the process ends.
//
// A guard keeps a connection. While that connection is open, SQLite deletes neither file.
type guard struct {
	pool     *pool
	log, shm beside
	file     *os.File // the log. SQLite locks only the other files, so that closing this descriptor releases no lock
	pageSize int64
	grown    atomic.Int64 // the largest known size of the log; before the first check, more than any size
	mu       sync.Mutex   // protects session
	session  *session
}

// beside is a file beside the database, and its identity when it was opened.
type beside struct {
	path   string
	opened os.FileInfo
}

// same reports whether the path still names the opened file, and returns the size of the file.
func (b beside) same() (size int64, same bool) {
	info, err := os.Stat(b.path)
	if err != nil || !os.SameFile(info, b.opened) {
		return 0, false
	}
	return info.Size(), true
}

// openGuard opens a connection that uses write-ahead logging, and records the files beside the database.
func (d *database) openGuard(ctx context.Context, p *pool) (err error) {
	g := &guard{pool: p, log: beside{path: d.path + "-wal"}, shm: beside{path: d.path + "-shm"}}
	g.grown.Store(math.MaxInt64)
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	if g.session, err = p.get(ctx, inTurn); err != nil {
		return err
	}
	size, err := list[numberRow](ctx, d, "read the page size", "page_size") // needs write-ahead logging
	if err != nil {
		return err
	}
	g.pageSize = size[0].N
	err = d.retryBusy(ctx, func() error {
		_, _, err := g.frames(ctx, "log_frames") // opens both files
		return err
	})
	if err != nil {
		return err
	}
	if g.file, err = os.Open(g.log.path); err == nil {
		g.log.opened, err = g.file.Stat()
	}
	if err == nil {
		d.precedence.file = g.file
		g.shm.opened, err = os.Stat(g.shm.path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return lostError("a file beside " + d.path + " was deleted just now")
	}
	if err != nil {
		return fileError(d.path, err)
	}
	d.guard = g
	return nil
}

func (g *guard) close() error {
	var err error
	if g.file != nil {
		err = g.file.Close()
	}
	if g.session != nil {
		g.pool.put(g.session, true)
	}
	return errors.Join(err, g.pool.close())
}

// frames runs a checkpoint statement. It returns how many frames the log has, and how many of them the database file
// has, too.
func (g *guard) frames(ctx context.Context, name string) (logged, saved int64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rows, err := g.session.query(context.WithoutCancel(ctx), name)
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	if !rows.Next() {
		return 0, 0, errors.Join(rows.Err(), sql.ErrNoRows)
	}
	var blocked int
	err = rows.Scan(&blocked, &logged, &saved)
	return logged, saved, err
}

// Sizes in the format of the write-ahead log.
const (
	logHeader   = 32
	frameHeader = 24
)

// size returns the minimum size of a log with frames.
func (g *guard) size(frames int64) int64 {
	if frames == 0 {
		return 0
	}
	return logHeader + frames*(g.pageSize+frameHeader)
}

// truncated reports whether the log is shorter than its frames. SQLite itself truncates the log only after it has reset
// the number of frames. During a call another process may do that, so only a second look is a proof.
func (g *guard) truncated(ctx context.Context, stat func() (os.FileInfo, error)) (bool, error) {
	for range 3 {
		before, _, err := g.frames(ctx, "log_frames")
		if busy(err) { // another process is writing, which checks the file itself
			return false, nil
		}
		if err != nil {
			return false, err
		}
		info, err := stat()
		if err != nil || info.Size() >= g.size(before) {
			return false, nil // the caller checks whether the file exists
		}
		if after, _, err := g.frames(ctx, "log_frames"); err != nil || after == before {
			return err == nil, err
		}
	}
	return false, nil
}

// noteGrowth records that the log has at least this size.
func (g *guard) noteGrowth(size int64) {
	for last := g.grown.Load(); size > last; last = g.grown.Load() {
		if g.grown.CompareAndSwap(last, size) {
			return
		}
	}
}

// shrunk reports whether the log is truncated. It queries SQLite only if the log has become shorter, because the query
// costs as much as a small write.
func (g *guard) shrunk(ctx context.Context) (bool, error) {
	info, err := os.Stat(g.log.path)
	if err != nil {
		return false, nil // the next check of the names reports it
	}
	last := g.grown.Load()
	if info.Size() >= last {
		return false, nil
	}
	truncated, err := g.truncated(ctx, func() (os.FileInfo, error) { return os.Stat(g.log.path) })
	if err == nil && !truncated {
		g.grown.CompareAndSwap(last, info.Size())
	}
	return truncated, err
}

// checkFile returns an ErrUnavailable if a write would not be kept: if the files are not those that this store has
// open, or if this store has lost its lock file. A caller with an open write transaction gets an exact result.
func (d *database) checkFile(ctx context.Context) error {
	if err := d.checkNames(ctx); err != nil {
		return err
	}
	if err := d.checkLock(); err != nil {
		return err
	}
	truncated, err := d.guard.shrunk(ctx)
	if err != nil || !truncated {
		return err
	}
	return d.lose(ctx, d.guard.log.path+" was emptied or truncated while it was in use")
}

// checkNames returns an ErrUnavailable if a path no longer names the open file. After a commit, nil means that a
// process that opens the file by its name finds the commit.
func (d *database) checkNames(ctx context.Context) error {
	if lost := d.lost.Load(); lost != nil {
		return *lost
	}
	info, err := os.Stat(d.path)
	if err != nil || !os.SameFile(info, d.opened) || info.Size() == 0 {
		return holdfast.WithHint(fmt.Errorf("%w: %s was deleted, moved, replaced or emptied while it was in use", holdfast.ErrUnavailable, d.path),
			holdfast.Hint{Kind: holdfast.HintReturnDatabase})
	}
	size, same := d.guard.log.same()
	if !same {
		return d.lose(ctx, d.guard.log.path+" was deleted or replaced while it was in use")
	}
	d.guard.noteGrowth(size)
	if _, same := d.guard.shm.same(); !same {
		return d.lose(ctx, d.guard.shm.path+" was deleted or replaced while it was in use")
	}
	return nil
}

// lose ends all writes of this store, because a file beside the database was deleted, replaced or truncated. First it
// saves the commits that only the open log has. It returns the error that all later writes return, too.
func (d *database) lose(ctx context.Context, what string) error {
	err := lostError(what + ", so this process stores nothing more")
	if !d.lost.CompareAndSwap(nil, &err) {
		return *d.lost.Load()
	}
	kept := d.keep(context.WithoutCancel(ctx))
	err = lostError(fmt.Sprintf("%s, so this process stores nothing more; %s", what, kept))
	d.lost.Store(&err)
	d.log.WithError(err).Error("file beside the database is lost: this process stores nothing more, restart it")
	return err
}

func lostError(text string) error {
	return holdfast.WithHint(fmt.Errorf("%w: %s", holdfast.ErrUnavailable, text), holdfast.Hint{Kind: holdfast.HintReopenDatabase})
}

// keepTimeout is how long keep waits for calls that read an older state.
const keepTimeout = 5 * time.Second

// keep copies the commits of a deleted log into the database file, and says what a restart will find. Every process of
// this build that has the database open has the same deleted log, because Open refuses to create a second one. If
// another program has written to a new log, keep changes nothing: its commits and these ones would damage each other.
func (d *database) keep(ctx context.Context) string {
	g := d.guard
	now, err := os.Stat(g.log.path)
	if err == nil && os.SameFile(now, g.log.opened) {
		truncated, err := g.truncated(ctx, g.file.Stat)
		if err == nil && !truncated {
			return "the log still has all its commits"
		}
		return "the tasks and results of the last commits may be lost"
	}
	const unsaved = "the tasks and results in the deleted log are lost"
	if err == nil && now.Size() > 0 {
		return unsaved + ", because another program has written to a new one"
	}
	if truncated, err := g.truncated(ctx, g.file.Stat); truncated || err != nil {
		return unsaved
	}
	began, pause := time.Now(), backoff.New(busyPause, busyPause)
	for {
		logged, saved, err := g.frames(ctx, "save_log")
		if err == nil && saved == logged {
			return "everything that was accepted is in " + d.path
		}
		if err != nil && !busy(err) || time.Since(began) > keepTimeout {
			d.log.WithError(err).Warn("deleted write-ahead log not saved")
			return unsaved
		}
		_ = pause.Wait(ctx)
	}
}

// abandoned has the files, by their paths, that a store of this process has lost. Their connections stay open until the
// process ends: the last close of SQLite would delete the files that now have the names of the lost ones.
var abandoned sync.Map

// checkAbandoned returns an ErrUnavailable if this process has lost the file before.
func checkAbandoned(path string, info os.FileInfo) error {
	if earlier, ok := abandoned.Load(path); ok && os.SameFile(earlier.(os.FileInfo), info) {
		return lostError("a file beside " + path + " was deleted or changed while this process used it")
	}
	return nil
}

// besideTimeout is how long Open waits for another process that just opens or closes the database.
const besideTimeout = time.Second

// checkBeside returns an ErrUnavailable if another connection has the database open, but a file beside it is missing.
// SQLite would create the file, and then two processes with different logs would overwrite each other's data.
func (d *database) checkBeside(ctx context.Context, texts map[string]string) error {
	began, pause := time.Now(), backoff.New(busyPause, busyPause)
	for {
		missing := ""
		for _, path := range []string{d.path + "-wal", d.path + "-shm"} {
			if _, err := os.Stat(path); err != nil {
				missing = path
			}
		}
		if missing == "" {
			return nil
		}
		if !busy(d.openAlone(ctx, texts)) {
			return nil // the next call reports other errors, for example of a read-only disk
		}
		if time.Since(began) > besideTimeout {
			return lostError(fmt.Sprintf("%s is missing, although another process uses %s: it was deleted", missing, d.path))
		}
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}

// openAlone opens the database and closes it again. It returns SQLITE_BUSY if another connection has the database open,
// because in this locking mode SQLite locks the whole database.
func (d *database) openAlone(ctx context.Context, texts map[string]string) error {
	// The settings of reading() would already open the files.
	p := newPool(connector(d.path, []pragma{noWait, "locking_mode(exclusive)", "query_only(on)"}), 1, texts)
	p.retryBusy = func(_ context.Context, f func() error) error { return f() }
	err := p.with(ctx, inTurn, func(c *session) error {
		_, err := one[ownerRow](ctx, c, "schema_owner")
		return err
	})
	return errors.Join(err, p.close())
}

// Ready returns an ErrUnavailable if this store accepts nothing, because a file was deleted or changed.
func (s *Store) Ready(ctx context.Context) error {
	return s.translate(ctx, "check the file", s.checkFile(ctx))
}
