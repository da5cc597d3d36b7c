package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var repairTests = []test{
	{"untickets tasks at the attempt of their tickets", testUnticket},
	{"untickets a queue", testUnticketQueue},
	{"untickets tasks whose tickets are proved lost", testUnticketLost},
	{"reports a replacement in doubt while a worker is busy", testUnticketLostDoubt},
	{"spares tasks whose tickets are passed on", testUnticketLostPassedOn},
	{"spares tasks that an outbox entry covers", testUnticketLostEntry},
	{"sends one sentinel at a time", testSentinels},
	{"sends a sentinel once among many janitors", testSentinelsConcurrently},
	{"gives one turn per interval", testTurn},
	{"gives a turn to one of several callers", testTurnConcurrently},
	{"does not deadlock with other calls", testUnticketConcurrently},
}

func testUnticket(s *suite) {
	later := newTask()
	later.Delay = time.Hour
	tickets := s.insert(newTask(), later, newTask(), newTask())
	s.mustClaim(s.registerWorker(), tickets[2])
	tickets[3].Attempt = 2
	n, err := s.Unticket(s.ctx, append(tickets, message.Ticket{Task: 1 << 60, Attempt: 1}))
	if err != nil || n != 1 {
		s.Errorf("Unticket returned %d, %v; want 1", n, err)
	}
	due, _ := s.dispatch(10)
	if len(due) != 1 || due[0].Ticket != tickets[0] {
		s.Errorf("the due tasks are %v, want %v", due, tickets[0])
	}
	if n, err := s.Unticket(s.ctx, nil); n != 0 || err != nil {
		s.Errorf("Unticket without tickets returned %d, %v", n, err)
	}
}

func testUnticketQueue(s *suite) {
	elsewhere, later := newTask(), newTask()
	elsewhere.Queue, later.Delay = "elsewhere", time.Hour
	tickets := s.insert(newTask(), elsewhere, later, newTask(), newTask())
	s.mustClaim(s.registerWorker(), tickets[3])
	if n, err := s.UnticketQueue(s.ctx, defaultQueue); n != 2 || err != nil {
		s.Errorf("UnticketQueue returned %d, %v; want 2", n, err)
	}
	if n, err := s.UnticketQueue(s.ctx, defaultQueue); n != 0 || err != nil {
		s.Errorf("the second UnticketQueue returned %d, %v; want 0", n, err)
	}
	due, _ := s.dispatch(10)
	if len(due) != 2 || due[0].Ticket != tickets[0] && due[1].Ticket != tickets[0] {
		s.Errorf("the due tasks are %v", due)
	}
}

// deliverTwoSentinels completes a proof: it delivers a sentinel of each queue, makes the store use that sentinel as the
// first one of the proof, and delivers a second sentinel.
func (s *suite) deliverTwoSentinels() {
	s.Helper()
	s.deliverSentinels()
	s.must(s.KeepSentinels(s.ctx, time.Hour))
	s.deliverSentinels()
}

// deliverSentinels sends a sentinel of each queue and records that it was delivered.
func (s *suite) deliverSentinels() {
	s.Helper()
	sentinels, err := s.SentinelsDue(s.ctx, 0, 0)
	s.must(err)
	for _, sentinel := range sentinels {
		s.must(s.Drained(s.ctx, sentinel))
	}
}

func testUnticketLost(s *suite) {
	lost := s.insertConfirmed()
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 0 || err != nil {
		s.Errorf("without a sentinel: UnticketLost returned %d, %v; want 0", n, err)
	}
	s.deliverTwoSentinels()
	young := s.insertConfirmed()
	if n, _, err := s.UnticketLost(s.ctx, time.Hour); n != 0 || err != nil {
		s.Errorf("within the slack: UnticketLost returned %d, %v; want 0", n, err)
	}
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 1 || err != nil {
		s.Errorf("UnticketLost returned %d, %v; want 1", n, err)
	}
	if s.position(lost).Ticketed || !s.position(young).Ticketed {
		s.Error("UnticketLost replaced the wrong ticket")
	}

	// A sentinel proves nothing about a later ticket.
	s.dispatch(10)
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 0 || err != nil {
		s.Errorf("with new tickets: UnticketLost returned %d, %v; want 0", n, err)
	}
	// The call above stored the latest sentinel, which was sent before both tickets. The next call stores a later one.
	s.deliverSentinels()
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 0 || err != nil {
		s.Errorf("with tickets later than the stored sentinel: UnticketLost returned %d, %v; want 0", n, err)
	}
	s.deliverSentinels()
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 2 || err != nil {
		s.Errorf("with a later sentinel: UnticketLost returned %d, %v; want 2", n, err)
	}
}

func testUnticketLostDoubt(s *suite) {
	lost := s.insertConfirmed()
	worker, err := s.RegisterWorker(s.ctx, store.WorkerInfo{Name: "busy", Concurrency: 2}, time.Minute)
	s.must(err)
	running := func(n int) {
		_, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Minute, Running: n})
		s.must(err)
	}
	lose := func() { // the new ticket is lost too
		s.dispatch(10)
		s.deliverSentinels()
		_, _, err := s.UnticketLost(s.ctx, 0) // stores the newest sentinel
		s.must(err)
		s.deliverSentinels()
	}
	running(2)
	s.deliverTwoSentinels()
	if n, doubtful, err := s.UnticketLost(s.ctx, 0); n != 0 || doubtful != 1 || err != nil || s.position(lost).Ticketed {
		s.Errorf("while a worker is busy: %d lost, %d in doubt, %v", n, doubtful, err)
	}
	lose()
	running(1)
	if n, doubtful, err := s.UnticketLost(s.ctx, 0); n != 1 || doubtful != 0 || err != nil {
		s.Errorf("while an executor is idle: %d lost, %d in doubt, %v", n, doubtful, err)
	}
	lose()
	running(2)
	s.must(s.DeregisterWorker(s.ctx, worker, true))
	if n, doubtful, err := s.UnticketLost(s.ctx, 0); n != 1 || doubtful != 0 || err != nil {
		s.Errorf("after the end of the worker: %d lost, %d in doubt, %v", n, doubtful, err)
	}
}

// insertConfirmed stores a task whose ticket was confirmed by the broker, and returns the ticket.
func (s *suite) insertConfirmed() message.Ticket {
	s.Helper()
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{newTask()}, 0)
	s.must(err)
	s.must(s.DeleteOutbox(s.ctx, []int64{inserted.Entries[0].ID}))
	return inserted.Entries[0].Tickets[0]
}

func testUnticketLostPassedOn(s *suite) {
	lost, passed, running := s.insertConfirmed(), s.insertConfirmed(), s.insertConfirmed()
	s.mustClaim(s.registerWorker(), running)
	s.deliverTwoSentinels()
	newer := passed
	newer.Attempt++
	s.must(s.PassedOn(s.ctx, []message.Ticket{passed, running}))
	s.must(s.PassedOn(s.ctx, []message.Ticket{{Task: lost.Task, Attempt: 2}, newer, {Task: 1 << 60, Attempt: 1}}))
	s.must(s.PassedOn(s.ctx, nil))
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 1 || err != nil || s.position(lost).Ticketed || !s.position(passed).Ticketed {
		s.Errorf("UnticketLost returned %d, %v; want only the ticket that was not passed on", n, err)
	}
	// A sentinel proves nothing about the requeue queue. Much later, UnticketLost replaces the ticket in doubt, because
	// it may still be in the requeue queue. Such a ticket is not reported as lost.
	s.deliverSentinels()
	_, _, err := s.UnticketLost(s.ctx, 0) // stores the newest sentinel
	s.must(err)
	s.deliverSentinels()
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 0 || err != nil || s.position(passed).Ticketed {
		s.Errorf("after the next sentinel: UnticketLost returned %d, %v; want 0 and a replaced ticket", n, err)
	}
	due, _ := s.dispatch(10)
	for _, d := range due {
		if d.Requeued != (d.Ticket == passed) {
			s.Errorf("the ticket %v: Requeued is %t", d.Ticket, d.Requeued)
		}
	}
	if len(due) != 2 {
		s.Errorf("the due tasks are %v", due)
	}
}

func testUnticketLostEntry(s *suite) {
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{newTask()}, 0)
	s.must(err)
	covered := inserted.Entries[0].Tickets[0]
	s.deliverTwoSentinels()
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 0 || err != nil || !s.position(covered).Ticketed {
		s.Errorf("UnticketLost returned %d, %v; want 0, because an outbox entry covers the task", n, err)
	}
	// The proof stays valid: a later call replaces the ticket once the outbox entry is deleted.
	s.must(s.DeleteOutbox(s.ctx, []int64{inserted.Entries[0].ID}))
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 1 || err != nil || s.position(covered).Ticketed {
		s.Errorf("UnticketLost returned %d, %v; want the ticket whose outbox entry was deleted", n, err)
	}
}

func testSentinels(s *suite) {
	elsewhere := newTask()
	elsewhere.Queue = "elsewhere"
	s.insert(elsewhere)
	pick := func(interval, lost time.Duration) []message.Sentinel {
		sentinels, err := s.SentinelsDue(s.ctx, interval, lost)
		s.must(err)
		slices.SortFunc(sentinels, func(a, b message.Sentinel) int { return len(a.Queue) - len(b.Queue) })
		return sentinels
	}
	first := pick(0, time.Hour)
	if len(first) != 2 || first[0].Queue != defaultQueue || first[1].Queue != "elsewhere" || first[0].At.IsZero() {
		s.Fatalf("the first sentinels are %v", first)
	}
	if next := pick(0, time.Hour); len(next) > 0 {
		s.Errorf("the sentinels are on their way, but SentinelsDue returned %v", next)
	}
	if next := pick(0, 0); len(next) != 2 {
		s.Errorf("both sentinels count as lost, but SentinelsDue returned %v", next)
	}
	s.must(s.Drained(s.ctx, first[0])) // an older sentinel than the latest one
	if next := pick(0, time.Hour); len(next) > 0 {
		s.Errorf("the latest sentinels are on their way, but SentinelsDue returned %v", next)
	}
	newest := pick(0, 0)
	s.must(s.Drained(s.ctx, newest[0]))
	if next := pick(time.Hour, time.Hour); len(next) > 0 {
		s.Errorf("the interval has not passed, but SentinelsDue returned %v", next)
	}
	if next := pick(0, time.Hour); len(next) != 1 || next[0].Queue != defaultQueue {
		s.Errorf("the sentinel of the default queue was delivered, but SentinelsDue returned %v", next)
	}

	// The later delivery of an older sentinel does not change DrainedAt.
	s.must(s.Drained(s.ctx, first[0]))
	s.must(s.Drained(s.ctx, message.Sentinel{Queue: "unknown", At: first[0].At}))
	queues, err := s.Queues(s.ctx)
	s.must(err)
	if len(queues) != 2 || !queues[0].DrainedAt.Equal(newest[0].At) {
		s.Errorf("the queues are %+v, want DrainedAt %s", queues, newest[0].At)
	}
}

func testSentinelsConcurrently(s *suite) {
	var mu sync.Mutex
	n := 0
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			sentinels, err := s.SentinelsDue(s.ctx, time.Hour, time.Hour)
			if err != nil {
				s.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			n += len(sentinels)
		})
	}
	group.Wait()
	if n != 1 {
		s.Errorf("SentinelsDue returned %d sentinels for one queue, want 1", n)
	}
}

// turn calls Turn and reports whether the caller has the turn.
func (s *suite) turn(duty string, every time.Duration) bool {
	s.Helper()
	mine, err := s.Turn(s.ctx, duty, every)
	s.must(err)
	return mine
}

func testTurn(s *suite) {
	if !s.turn("duty", time.Hour) {
		s.Error("the first turn was refused")
	}
	if s.turn("duty", time.Hour) {
		s.Error("the turn was given twice within the interval")
	}
	if !s.turn("another", time.Hour) {
		s.Error("the turn of another duty was refused")
	}
	const every = 50 * time.Millisecond
	before := s.now() // earlier than the first turn, after which the next turn is at least every later
	s.must(func() error { _, err := s.Turn(s.ctx, "short", time.Hour); return err }())
	s.eventually("the next turn is given", func() bool { return s.turn("short", every) })
	if took := s.now().Sub(before); took < every {
		s.Errorf("the next turn came after %s", took)
	}
	if s.turn("short", time.Hour) {
		s.Error("the turn after the second one was given within the interval")
	}
}

// countTurns returns the number of turns that concurrent callers get. Each of them calls Turn many times.
func (s *suite) countTurns(duty string, every time.Duration) (n int) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 25 {
				mine, err := s.Turn(s.ctx, duty, every)
				if err != nil {
					s.Error(err)
					return
				}
				if mine {
					mu.Lock()
					n++
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return n
}

func testTurnConcurrently(s *suite) {
	for round := range 5 {
		if n := s.countTurns(fmt.Sprint("duty ", round), time.Hour); n != 1 {
			s.Errorf("%d callers got the first turn, want 1", n)
		}
	}
	const every = 5 * time.Millisecond
	begin := s.now()
	n := s.countTurns("often", every)
	if most := int(s.now().Sub(begin)/every) + 1; n < 1 || n > most {
		s.Errorf("got %d turns, want 1 to %d", n, most)
	}
}

// testUnticketConcurrently changes the same rows with repairs, claims, transitions, parks and dispatches.
func testUnticketConcurrently(s *suite) {
	tickets := s.insertN(150)
	worker := s.registerWorker()
	var group sync.WaitGroup
	concurrently := func(f func() error) {
		group.Go(func() {
			for range 12 {
				if err := f(); err != nil {
					s.Error(err)
					return
				}
			}
		})
	}
	concurrently(func() error { _, err := s.UnticketQueue(s.ctx, defaultQueue); return err })
	concurrently(func() error { _, err := s.Unticket(s.ctx, tickets); return err })
	concurrently(func() error { _, _, err := s.UnticketLost(s.ctx, 0); return err })
	concurrently(func() error { return s.Park(s.ctx, tickets, 0, "parked") })
	concurrently(func() error { s.dispatch(40); return nil })
	concurrently(func() error {
		claims, err := s.Claim(s.ctx, worker, kinds, tickets[:100], store.IntoExecutors)
		var moves []holdfast.Transition
		for _, claim := range claims {
			if claim.Verdict == store.Claimed {
				move := s.settle(*claim.Task, holdfast.Interrupted(nil))
				move.NextAttempt = claim.Task.Attempt // so that the same tickets stay valid
				moves = append(moves, move)
			}
		}
		if err == nil {
			_, err = s.Apply(s.ctx, moves)
		}
		return err
	})
	group.Wait()
}
