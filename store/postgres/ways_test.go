package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// There are different statements for one attempt number and for several, both for claims and for results. The ids may
// be close together, in ranges or far apart. In every case the store claims and completes exactly those given tasks
// that it may claim and complete.
func TestEveryWayTakesAndFinishesWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	worker, other := registerWorker(t, s), registerWorker(t, s)
	for seed := range uint64(slow.Pick(2, 10)) {
		for spacing, pick := range map[string]func(r *rand.Rand, i int) bool{
			"close together": func(r *rand.Rand, _ int) bool { return r.IntN(3) > 0 },
			"ranges":         func(r *rand.Rand, i int) bool { return i/20%2 == 0 && r.IntN(8) > 0 }, // like a worker that gets every second message
			"far apart":      func(_ *rand.Rand, i int) bool { return i%11 == 0 },
		} {
			for _, mixed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/mixed=%t/%d", spacing, mixed, seed), func(t *testing.T) {
					claimAndComplete(t, s, worker, other, rand.New(rand.NewPCG(seed, 1)), pick, mixed)
				})
			}
		}
	}
}

func claimAndComplete(t *testing.T, s *postgres.Store, worker, other holdfast.WorkerID, r *rand.Rand, pick func(*rand.Rand, int) bool, mixed bool) {
	all := insert(t, s, 150)
	wanted, foreign := map[message.Ticket]bool{}, map[message.Ticket]bool{}
	var tickets, theirs []message.Ticket
	for i, ticket := range all {
		if pick(r, i) {
			wanted[ticket], tickets = true, append(tickets, ticket)
		}
		if r.IntN(5) == 0 {
			foreign[ticket], theirs = true, append(theirs, ticket)
		}
	}
	if mixed { // several attempt numbers: this attempt does not exist
		tickets = append(tickets, message.Ticket{Task: all[0].Task, Attempt: 9})
	}
	r.Shuffle(len(tickets), func(i, j int) { tickets[i], tickets[j] = tickets[j], tickets[i] })
	claim := func(worker holdfast.WorkerID, tickets []message.Ticket) []store.Claim {
		claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets, store.IntoExecutors)
		if err != nil {
			t.Fatal(err)
		}
		return claims
	}
	claim(other, theirs)
	var moves []holdfast.Transition
	for i, c := range claim(worker, tickets) {
		want := store.Claimed
		if foreign[tickets[i]] {
			want = store.Contended
		}
		if tickets[i].Attempt == 9 {
			if c.Verdict == store.Claimed {
				t.Error("an attempt that does not exist was claimed")
			}
			continue
		}
		if c.Verdict != want || want == store.Claimed && c.Task.ID != tickets[i].Task {
			t.Errorf("ticket %v: verdict %v of task %+v, want %v", tickets[i], c.Verdict, c.Task, want)
		}
		task := c.Task
		if want != store.Claimed { // another worker runs the task, so the store must refuse this result
			task = &holdfast.Task{ID: tickets[i].Task, Attempt: 1, MaxAttempts: 1, State: holdfast.Running, Worker: worker}
		}
		move, err := holdfast.Settle(*task, holdfast.Returned(nil), c.Now, holdfast.DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		moves = append(moves, move)
	}
	if mixed { // a result of a worker without tasks
		moves = append(moves, moves[0])
		moves[len(moves)-1].Worker = worker + other
	}
	accepted, err := s.Apply(t.Context(), moves)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range moves {
		if want := m.Worker == worker && !foreign[message.Ticket{Task: m.Task, Attempt: 1}]; accepted[i] != want {
			t.Errorf("the result of task %s by worker %d: accepted %t, want %t", m.Task, m.Worker, accepted[i], want)
		}
	}
	for _, ticket := range all {
		want := holdfast.Ready
		switch {
		case foreign[ticket]:
			want = holdfast.Running
		case wanted[ticket]:
			want = holdfast.Done
		}
		if task, err := s.Task(t.Context(), ticket.Task); err != nil || task.State != want {
			t.Errorf("task %s is %s, want %s: %v", ticket.Task, task.State, want, err)
		}
	}
}
