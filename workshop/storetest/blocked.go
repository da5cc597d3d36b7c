package storetest

import (
	"maps"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

var blockedTests = []test{
	{"counts the blocked tasks of each queue", testBlockedByQueue},
}

// testBlockedByQueue blocks tasks of several queues at a pause, a limit and a breaker, and behind a dead task. The store
// counts only tasks that a closed gate or a dead task blocks.
func testBlockedByQueue(s *suite) {
	want := func(when string, want map[string]int64) {
		s.Helper()
		counts, err := s.BlockedByQueue(s.ctx)
		s.must(err)
		if !maps.Equal(counts.Tasks, want) || counts.More {
			s.Errorf("%s, %v are blocked (more: %t), want %v", when, counts.Tasks, counts.More, want)
		}
	}
	want("in an empty store", map[string]int64{})
	worker := s.registerWorker()
	mail, high, limited, waits := newTask(), newTask(), newTask(), newTask()
	mail.Queue, high.Priority, limited.Type, waits.Key, waits.Ordered = "mail", holdfast.PriorityHigh, other, "tenant-7", true
	highQueue := holdfast.Subqueue(defaultQueue, holdfast.PriorityHigh)
	tickets := s.insertN(3)
	inMail, ofHigh, ofLimit, ofTarget := s.insert(mail)[0], s.insert(high)[0], s.insert(limited)[0], s.insert(deliveryTo(slowURL))[0]
	s.insert(waits, waits) // the second one waits for its turn, and no gate blocks it
	gate := s.pause(store.Subject{Type: kind}, 0)
	s.block(worker, gate.ID, append([]message.Ticket{inMail, ofHigh}, tickets...)...)
	want("at a pause", map[string]int64{defaultQueue: 3, "mail": 1, highQueue: 1})

	limit, err := s.SetLimit(s.ctx, anna, store.Limit{Scope: store.Scope{Subject: store.Subject{Type: other}}, Concurrency: 1}.Change())
	s.must(err)
	s.block(worker, limit.After.ID, ofLimit)
	s.must(s.ReportTargets(s.ctx, []store.TargetReport{{Target: slowTarget, Refused: true, Pause: time.Hour, Cause: "503"}}))
	s.block(worker, s.gates()[1].ID, ofTarget)
	want("at all kinds of gates", map[string]int64{defaultQueue: 5, "mail": 1, highQueue: 1})
	counts, err := s.BlockedByQueue(s.ctx)
	s.must(err)
	// The first task of the default queue was stored before that of mail.
	if first, second := counts.Oldest[defaultQueue], counts.Oldest["mail"]; len(counts.Oldest) != 3 || first < second || second <= 0 || first > slow.Patience() {
		s.Errorf("the oldest blocked tasks have been due for %v", counts.Oldest)
	}

	// A cancelled task and those of a gate that has opened are not blocked, even if no janitor has released them.
	s.mustChange(s.changeOf(store.ActionCancel, s.task(tickets[0].Task), holdfast.Requested(holdfast.EventCancel)))
	want("after a cancellation", map[string]int64{defaultQueue: 4, "mail": 1, highQueue: 1})
	s.resume(gate.Subject)
	want("after the end of the pause", map[string]int64{defaultQueue: 2})
	for s.release(10) > 0 {
	}
	s.pause(store.Subject{Queue: "mail"}, time.Hour)
	want("at a pause that has blocked no task", map[string]int64{defaultQueue: 1})

	// Two tasks wait behind a dead one. Those of a key that skips its dead tasks do not wait.
	for queue, after := range map[string]holdfast.AfterDeath{"held": holdfast.AfterDeathBlock, "skipped": holdfast.AfterDeathSkip} {
		ordered := newTask()
		ordered.Queue, ordered.Key, ordered.Ordered = queue, queue, true
		s.dieOrdered(worker, s.insert(ordered, ordered, ordered)[0], after)
	}
	for s.release(10) > 0 {
	}
	want("behind a dead task", map[string]int64{defaultQueue: 1, "held": 2})
}
