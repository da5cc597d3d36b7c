package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/slow"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// Tickets and results go one of two ways, depending on whether they have one attempt number. Their tasks are near each other, in ranges
// or far apart. Whichever it is, exactly those are taken and finished that were asked for and may be.
func TestEveryWayTakesAndFinishesWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	run, other := openRun(t, s), openRun(t, s)
	for seed := range uint64(slow.Pick(2, 10)) {
		for way, pick := range map[string]func(r *rand.Rand, i int) bool{
			"near":      func(r *rand.Rand, _ int) bool { return r.IntN(3) > 0 },
			"ranges":    func(r *rand.Rand, i int) bool { return i/20%2 == 0 && r.IntN(8) > 0 }, // as a worker gets every other message
			"far apart": func(_ *rand.Rand, i int) bool { return i%11 == 0 },
		} {
			for _, mixed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/mixed=%t/%d", way, mixed, seed), func(t *testing.T) {
					takeAndFinish(t, s, run, other, rand.New(rand.NewPCG(seed, 1)), pick, mixed)
				})
			}
		}
	}
}

func takeAndFinish(t *testing.T, s *postgres.Store, run, other holdfast.RunID, r *rand.Rand, pick func(*rand.Rand, int) bool, mixed bool) {
	all := insert(t, s, 150)
	asked, foreign := map[message.Ticket]bool{}, map[message.Ticket]bool{}
	var tickets, taken []message.Ticket
	for i, ticket := range all {
		if pick(r, i) {
			asked[ticket], tickets = true, append(tickets, ticket)
		}
		if r.IntN(5) == 0 {
			foreign[ticket], taken = true, append(taken, ticket)
		}
	}
	if mixed { // attempt numbers: this one is of an attempt that never was
		tickets = append(tickets, message.Ticket{Task: all[0].Task, Attempt: 9})
	}
	r.Shuffle(len(tickets), func(i, j int) { tickets[i], tickets[j] = tickets[j], tickets[i] })
	claim := func(run holdfast.RunID, tickets []message.Ticket) []store.Claim {
		claims, err := s.Claim(t.Context(), run, store.AnyOf("t"), tickets, store.IntoExecutors)
		if err != nil {
			t.Fatal(err)
		}
		return claims
	}
	claim(other, taken)
	var moves []holdfast.Transition
	for i, c := range claim(run, tickets) {
		want := store.Claimed
		if foreign[tickets[i]] {
			want = store.Contended
		}
		if tickets[i].Attempt == 9 {
			if c.Verdict == store.Claimed {
				t.Error("an attempt that never was is claimed")
			}
			continue
		}
		if c.Verdict != want || want == store.Claimed && c.Task.ID != tickets[i].Task {
			t.Errorf("ticket %v: verdict %v of task %s, want %v", tickets[i], c.Verdict, c.Task.ID, want)
		}
		task := c.Task
		if want != store.Claimed { // a result that this run has no right to give
			task = holdfast.Task{ID: tickets[i].Task, Attempt: 1, MaxAttempts: 1, State: holdfast.Running, Run: run}
		}
		move, err := holdfast.Settle(task, holdfast.Returned(nil), c.Now, holdfast.DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		moves = append(moves, move)
	}
	if mixed { // and a result of a run that has no task
		moves = append(moves, moves[0])
		moves[len(moves)-1].Run = run + other
	}
	accepted, err := s.Apply(t.Context(), moves)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range moves {
		if want := m.Run == run && !foreign[message.Ticket{Task: m.Task, Attempt: 1}]; accepted[i] != want {
			t.Errorf("the result of task %s by run %d: accepted %t, want %t", m.Task, m.Run, accepted[i], want)
		}
	}
	for _, ticket := range all {
		want := holdfast.Ready
		switch {
		case foreign[ticket]:
			want = holdfast.Running
		case asked[ticket]:
			want = holdfast.Done
		}
		if task, err := s.Task(t.Context(), ticket.Task); err != nil || task.State != want {
			t.Errorf("task %s is %s, want %s: %v", ticket.Task, task.State, want, err)
		}
	}
}
