package producer

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/store"
)

const (
	// txGrace is the maximum time from the begin of a caller's transaction to its commit so that the producer publishes
	// its tickets. After a later commit, or if the producer has ended, a janitor publishes them. txGrace delays the
	// janitor, so it is short.
	txGrace = time.Second
	// firstLook is the time from EnqueueTx to the first query for the commit. Most callers commit at once.
	firstLook = 2 * time.Millisecond
	// lookInterval is the minimum time between two queries, for the same or for other entries.
	lookInterval = 4 * time.Millisecond
	// groupPause is the minimum time from a query that found a commit to the next query. If there are many commits per
	// second, those in this time share a message and a claim. Tasks that are published one by one cost twice as much.
	groupPause = 10 * time.Millisecond
	// The next query for an entry follows after 1/lookShare of the time since EnqueueTx. So the producer notices a
	// commit late by at most that part, and makes about 40 queries for an entry in total.
	lookShare = 8
	// maxLookEntries is the maximum number of outbox entries in one query.
	maxLookEntries = 200
	// maxWatched is the maximum number of watched outbox entries. Janitors publish the tickets of further calls.
	maxWatched = 20_000
)

// commitWatch detects commits of the transactions of EnqueueTx, and passes their outbox entries to the publisher. A
// query on a connection of the producer's store finds the committed entries of many transactions by their ids. No
// statement runs in the transactions of the callers. A NOTIFY there would make all committing transactions of the
// database wait for each other.
//
// The watch of an entry ends after its grace, whether its transaction has committed, was rolled back, or is still open.
// From then on the entry belongs to the janitors. So the cost of an open transaction does not depend on how long it
// stays open.
type commitWatch struct {
	store     store.Inserter
	publisher *publisher
	limit     time.Duration // maximum time for which an entry is watched
	log       logrus.FieldLogger

	mu      sync.Mutex
	entries []watchedEntry
	looking bool
	wakeAt  time.Time     // when run wakes up; set only while it sleeps
	sooner  chan struct{} // gets a value when run must wake up before wakeAt
	closing chan struct{}
	closed  sync.Once
	running sync.WaitGroup
}

// watchedEntry is an outbox entry of EnqueueTx. Its tickets are read after the commit, because another entry may get
// the same id after a rollback.
type watchedEntry struct {
	id          int64
	since, next time.Time // when EnqueueTx stored the entry, and when to query for it
}

// grace returns the grace of the outbox entries of the next insert. It is 0 if the watch cannot take more entries: then
// janitors publish the tickets at once.
func (w *commitWatch) grace() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.entries) >= maxWatched {
		return 0
	}
	return w.limit
}

// add watches outbox entries that were stored in a caller's transaction.
func (w *commitWatch) add(ctx context.Context, entries []store.OutboxEntry) {
	if len(entries) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	next := now.Add(firstLook)
	for _, entry := range entries {
		w.entries = append(w.entries, watchedEntry{id: entry.ID, since: now, next: next})
	}
	switch {
	case !w.looking:
		w.looking, w.wakeAt = true, next
		w.running.Go(func() { w.run(context.WithoutCancel(ctx)) })
	case next.Before(w.wakeAt):
		w.wakeAt = next
		select {
		case w.sooner <- struct{}{}:
		default:
		}
	}
}

// close queries once more for all watched entries and passes the committed ones to the publisher. It does not wait for
// open transactions, and leaves their entries to the janitors. add must not be called after close.
func (w *commitWatch) close() {
	w.closed.Do(func() { close(w.closing) })
	w.running.Wait()
}

// run queries for watched entries until there are none.
func (w *commitWatch) run(ctx context.Context) {
	for notBefore := (time.Time{}); ; {
		due, wait, closing := w.due(notBefore)
		switch {
		case len(due) > 0:
			committed, err := w.look(ctx, due)
			pause := lookInterval
			if len(committed) > 0 {
				pause = groupPause
			}
			notBefore = time.Now().Add(pause)
			w.keep(due, committed, closing, err)
			w.publisher.addCommitted(ctx, committed)
		case wait > 0:
			w.sleep(wait)
		default:
			return
		}
	}
}

// sleep waits for d, until an entry is due sooner, or until close is called.
func (w *commitWatch) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.sooner:
	case <-w.closing:
	}
}

// due takes the entries to query for now, and drops those whose grace has ended. If none is due, it returns how long to
// wait, or 0 if no entry is watched. No entry is due before notBefore. After close, every entry is due.
func (w *commitWatch) due(notBefore time.Time) (due []watchedEntry, wait time.Duration, closing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeAt = time.Time{} // add must not wake run, except as below
	select {
	case <-w.closing:
		closing = true
	default:
	}
	now := time.Now()
	if pause := notBefore.Sub(now); pause > 0 && !closing {
		return nil, pause, false
	}
	later, earliest := w.entries[:0], time.Time{}
	for _, entry := range w.entries {
		switch {
		case now.Sub(entry.since) >= w.limit:
		case len(due) < maxLookEntries && (closing || !entry.next.After(now)):
			due = append(due, entry)
		default:
			later = append(later, entry)
			if earliest.IsZero() || entry.next.Before(earliest) {
				earliest = entry.next
			}
		}
	}
	w.entries = later
	switch {
	case len(due) > 0:
		return due, 0, closing
	case len(later) == 0:
		w.entries, w.looking = nil, false
		return nil, 0, false
	}
	w.wakeAt = earliest
	return nil, earliest.Sub(now), false
}

// look returns those entries that are committed and younger than their grace.
func (w *commitWatch) look(ctx context.Context, due []watchedEntry) ([]store.OutboxEntry, error) {
	ids := make([]int64, len(due))
	for i, entry := range due {
		ids[i] = entry.id
	}
	ctx, cancel := context.WithTimeout(ctx, w.limit)
	defer cancel()
	committed, err := w.store.CommittedOutbox(ctx, ids)
	if err != nil {
		w.log.WithError(err).WithField("outbox entries", len(due)).Debug("commits of callers not looked up")
	}
	return committed, err
}

// keep continues to watch the due entries that are not committed. After close it watches none of them. If the query
// failed after close, it watches no entry at all.
func (w *commitWatch) keep(due []watchedEntry, committed []store.OutboxEntry, closing bool, err error) {
	found := make(map[int64]bool, len(committed))
	for _, entry := range committed {
		found[entry.ID] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, entry := range due {
		if !found[entry.id] && !closing {
			entry.next = now.Add(max(lookInterval, now.Sub(entry.since)/lookShare))
			w.entries = append(w.entries, entry)
		}
	}
	if closing && err != nil {
		w.entries = nil
	}
}
