package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var repairTests = []test{
	{"untickets tasks at their attempt", testUnticket},
	{"untickets a lane", testUnticketLane},
	{"untickets what a sentinel proves lost", testUnticketLost},
	{"doubts a loss while a worker is full", testUnticketLostDoubt},
	{"spares what was passed on", testUnticketLostPassedOn},
	{"spares what a receipt covers", testUnticketLostReceipt},
	{"sends one sentinel at a time", testSentinels},
	{"sends a sentinel once among many janitors", testSentinelsConcurrently},
	{"gives a turn once in an interval", testTurn},
	{"gives a turn to one of many", testTurnConcurrently},
	{"does not deadlock", testUnticketConcurrently},
}

func testUnticket(s *suite) {
	later := newTask()
	later.Delay = time.Hour
	tickets := s.insert(newTask(), later, newTask(), newTask())
	s.claimed(s.openRun(), tickets[2])
	tickets[3].Attempt = 2
	n, err := s.Unticket(s.ctx, append(tickets, message.Ticket{Task: 1 << 60, Attempt: 1}))
	if err != nil || n != 1 {
		s.Errorf("unticketed %d, %v", n, err)
	}
	due, _ := s.dispatch(10)
	if len(due) != 1 || due[0].Ticket != tickets[0] {
		s.Errorf("due are %v", due)
	}
	if n, err := s.Unticket(s.ctx, nil); n != 0 || err != nil {
		s.Errorf("no tickets: %d, %v", n, err)
	}
}

func testUnticketLane(s *suite) {
	elsewhere, later := newTask(), newTask()
	elsewhere.Lane, later.Delay = "elsewhere", time.Hour
	tickets := s.insert(newTask(), elsewhere, later, newTask(), newTask())
	s.claimed(s.openRun(), tickets[3])
	if n, err := s.UnticketLane(s.ctx, defaultLane); n != 2 || err != nil {
		s.Errorf("unticketed %d, %v", n, err)
	}
	if n, err := s.UnticketLane(s.ctx, defaultLane); n != 0 || err != nil {
		s.Errorf("unticketed once more %d, %v", n, err)
	}
	due, _ := s.dispatch(10)
	if len(due) != 2 || due[0].Ticket != tickets[0] && due[1].Ticket != tickets[0] {
		s.Errorf("due are %v", due)
	}
}

// drainLane sends a sentinel down the default lane, records that it came out, and has the store hold it as the next proof.
// The proof is complete when another one has come out.
func (s *suite) drainLane() {
	s.Helper()
	s.comesOut()
	_, _, err := s.UnticketLost(s.ctx, time.Hour)
	s.must(err)
	s.comesOut()
}

// comesOut sends a sentinel down the default lane and records that it came out.
func (s *suite) comesOut() {
	s.Helper()
	sentinels, err := s.SentinelsDue(s.ctx, 0, 0)
	s.must(err)
	for _, sentinel := range sentinels {
		s.must(s.Drained(s.ctx, sentinel))
	}
}

func testUnticketLost(s *suite) {
	lost := s.insertDischarged()
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 0 || err != nil {
		s.Errorf("without a sentinel: %d, %v", n, err)
	}
	s.drainLane()
	young := s.insertDischarged()
	if n, _, err := s.UnticketLost(s.ctx, time.Hour); n != 0 || err != nil {
		s.Errorf("within the slack: %d, %v", n, err)
	}
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 1 || err != nil {
		s.Errorf("lost are %d, %v", n, err)
	}
	if s.position(lost).Ticketed || !s.position(young).Ticketed {
		s.Error("the wrong task is unticketed")
	}

	// A later ticket than the sentinel says nothing.
	s.dispatch(10)
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 0 || err != nil {
		s.Errorf("ticketed again just now: %d, %v", n, err)
	}
	// The look above holds the newest sentinel, which was sent before both tickets. The next look holds a later one.
	s.comesOut()
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 0 || err != nil {
		s.Errorf("ticketed after the sentinel that is held: %d, %v", n, err)
	}
	s.comesOut()
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 2 || err != nil {
		s.Errorf("a later sentinel proves %d, %v", n, err)
	}
}

func testUnticketLostDoubt(s *suite) {
	lost := s.insertDischarged()
	run, err := s.OpenRun(s.ctx, store.RunInfo{Name: "full", Concurrency: 2}, time.Minute)
	s.must(err)
	running := func(n int) {
		_, err := s.Renew(s.ctx, store.Renewal{Run: run, Lease: time.Minute, Running: n})
		s.must(err)
	}
	lose := func() { // the new ticket is lost too
		s.dispatch(10)
		s.comesOut()
		_, _, err := s.UnticketLost(s.ctx, 0) // holds that sentinel
		s.must(err)
		s.comesOut()
	}
	running(2)
	s.drainLane()
	if n, doubtful, err := s.UnticketLost(s.ctx, 0); n != 0 || doubtful != 1 || err != nil || s.position(lost).Ticketed {
		s.Errorf("while a worker is full: %d lost, %d in doubt, %v", n, doubtful, err)
	}
	lose()
	running(1)
	if n, doubtful, err := s.UnticketLost(s.ctx, 0); n != 1 || doubtful != 0 || err != nil {
		s.Errorf("while it has room: %d lost, %d in doubt, %v", n, doubtful, err)
	}
	lose()
	running(2)
	s.must(s.CloseRun(s.ctx, run, true))
	if n, doubtful, err := s.UnticketLost(s.ctx, 0); n != 1 || doubtful != 0 || err != nil {
		s.Errorf("after it has ended: %d lost, %d in doubt, %v", n, doubtful, err)
	}
}

// insertDischarged stores a task whose ticket was confirmed.
func (s *suite) insertDischarged() message.Ticket {
	s.Helper()
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{newTask()}, 0)
	s.must(err)
	s.must(s.Discharge(s.ctx, []int64{inserted.Receipts[0].ID}))
	return inserted.Receipts[0].Tickets[0]
}

func testUnticketLostPassedOn(s *suite) {
	lost, passed, running := s.insertDischarged(), s.insertDischarged(), s.insertDischarged()
	s.claimed(s.openRun(), running)
	s.drainLane()
	newer := passed
	newer.Attempt++
	s.must(s.PassedOn(s.ctx, []message.Ticket{passed, running}))
	s.must(s.PassedOn(s.ctx, []message.Ticket{{Task: lost.Task, Attempt: 2}, newer, {Task: 1 << 60, Attempt: 1}}))
	s.must(s.PassedOn(s.ctx, nil))
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 1 || err != nil || s.position(lost).Ticketed || !s.position(passed).Ticketed {
		s.Errorf("lost are %d, %v; want the one that was not passed on", n, err)
	}
	// Of the other queue no sentinel says anything. Much later the ticket is replaced nevertheless. It may rest there, so it is not counted.
	s.comesOut()
	_, _, err := s.UnticketLost(s.ctx, 0) // holds that one
	s.must(err)
	s.comesOut()
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 0 || err != nil || s.position(passed).Ticketed {
		s.Errorf("after the next sentinel %d, %v", n, err)
	}
	due, _ := s.dispatch(10)
	for _, d := range due {
		if d.Again != (d.Ticket == passed) {
			s.Errorf("%v goes to the other queue: %t", d.Ticket, d.Again)
		}
	}
	if len(due) != 2 {
		s.Errorf("due are %v", due)
	}
}

func testUnticketLostReceipt(s *suite) {
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{newTask()}, 0)
	s.must(err)
	covered := inserted.Receipts[0].Tickets[0]
	s.drainLane()
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 0 || err != nil || !s.position(covered).Ticketed {
		s.Errorf("unticketed %d although its receipt stands, %v", n, err)
	}
	// What is proved stays proved: a look that could not pass the task yet was not the last one.
	s.must(s.Discharge(s.ctx, []int64{inserted.Receipts[0].ID}))
	if n, _, err := s.UnticketLost(s.ctx, 0); n != 1 || err != nil || s.position(covered).Ticketed {
		s.Errorf("lost are %d, %v; want the one whose receipt is gone", n, err)
	}
}

func testSentinels(s *suite) {
	elsewhere := newTask()
	elsewhere.Lane = "elsewhere"
	s.insert(elsewhere)
	pick := func(interval, lost time.Duration) []message.Sentinel {
		sentinels, err := s.SentinelsDue(s.ctx, interval, lost)
		s.must(err)
		slices.SortFunc(sentinels, func(a, b message.Sentinel) int { return len(a.Lane) - len(b.Lane) })
		return sentinels
	}
	first := pick(0, time.Hour)
	if len(first) != 2 || first[0].Lane != defaultLane || first[1].Lane != "elsewhere" || first[0].At.IsZero() {
		s.Fatalf("the first sentinels are %v", first)
	}
	if again := pick(0, time.Hour); len(again) > 0 {
		s.Errorf("they are on their way, but %v", again)
	}
	if again := pick(0, 0); len(again) != 2 {
		s.Errorf("they count as lost, but only %v", again)
	}
	s.must(s.Drained(s.ctx, first[0])) // an older one than the newest
	if again := pick(0, time.Hour); len(again) > 0 {
		s.Errorf("the newest are still on their way, but %v", again)
	}
	newest := pick(0, 0)
	s.must(s.Drained(s.ctx, newest[0]))
	if again := pick(time.Hour, time.Hour); len(again) > 0 {
		s.Errorf("the interval is not over, but %v", again)
	}
	if again := pick(0, time.Hour); len(again) != 1 || again[0].Lane != defaultLane {
		s.Errorf("the one that came out allows the next, but %v", again)
	}

	// What is known to be drained stays so, whatever comes out later.
	s.must(s.Drained(s.ctx, first[0]))
	s.must(s.Drained(s.ctx, message.Sentinel{Lane: "unknown", At: first[0].At}))
	lanes, err := s.Lanes(s.ctx)
	s.must(err)
	if len(lanes) != 2 || !lanes[0].DrainedAt.Equal(newest[0].At) {
		s.Errorf("the lanes are %+v, drained at %s", lanes, newest[0].At)
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
		s.Errorf("%d sentinels for one lane", n)
	}
}

func (s *suite) turn(duty string, every time.Duration) bool {
	s.Helper()
	mine, err := s.Turn(s.ctx, duty, every)
	s.must(err)
	return mine
}

func testTurn(s *suite) {
	if !s.turn("duty", time.Hour) {
		s.Error("nobody has taken the first turn")
	}
	if s.turn("duty", time.Hour) {
		s.Error("taken a moment ago, and given again")
	}
	if !s.turn("another", time.Hour) {
		s.Error("another duty has turns of its own")
	}
	const every = 50 * time.Millisecond
	before := s.now() // after the last turn, so the next one is not before every has passed since
	s.must(func() error { _, err := s.Turn(s.ctx, "short", time.Hour); return err }())
	s.eventually("the next turn", func() bool { return s.turn("short", every) })
	if took := s.now().Sub(before); took < every {
		s.Errorf("the next turn came after %s", took)
	}
	if s.turn("short", time.Hour) {
		s.Error("the second turn does not count")
	}
}

// turns counts the turns that many callers get, each of whom asks often.
func (s *suite) turns(duty string, every time.Duration) (n int) {
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
		if n := s.turns(fmt.Sprint("duty ", round), time.Hour); n != 1 {
			s.Errorf("%d callers had the first turn", n)
		}
	}
	const every = 5 * time.Millisecond
	begin := s.now()
	n := s.turns("often", every)
	if most := int(s.now().Sub(begin)/every) + 1; n < 1 || n > most {
		s.Errorf("%d turns where %d fit", n, most)
	}
}

// Repairs, claims, results and the scheduler meet on the same rows.
func testUnticketConcurrently(s *suite) {
	tickets := s.inserts(150)
	run := s.openRun()
	var group sync.WaitGroup
	hammer := func(f func() error) {
		group.Go(func() {
			for range 12 {
				if err := f(); err != nil {
					s.Error(err)
					return
				}
			}
		})
	}
	hammer(func() error { _, err := s.UnticketLane(s.ctx, defaultLane); return err })
	hammer(func() error { _, err := s.Unticket(s.ctx, tickets); return err })
	hammer(func() error { _, _, err := s.UnticketLost(s.ctx, 0); return err })
	hammer(func() error { return s.Park(s.ctx, tickets, 0, "parked") })
	hammer(func() error { s.dispatch(40); return nil })
	hammer(func() error {
		claims, err := s.Claim(s.ctx, run, kinds, tickets[:100], store.IntoExecutors)
		var moves []holdfast.Transition
		for _, claim := range claims {
			if claim.Verdict == store.Claimed {
				move := s.settle(claim.Task, holdfast.Interrupted(nil))
				move.NextAttempt = claim.Task.Attempt // to meet the same tickets again
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
