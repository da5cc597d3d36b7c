package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// testOrderRandom makes random changes. At most one task of a key may run at a time. In the end, the remaining tasks
// must start in their order, and all tasks must end.
func testOrderRandom(s *suite) {
	seed := uint64(s.now().UnixNano())
	s.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(1, seed))
	worker := s.registerWorker()
	keys := []string{"a", "b", "c"}
	running := map[holdfast.TaskID]holdfast.Task{}
	var all []holdfast.TaskID
	for range slow.Pick(60, 150) {
		switch n := random.IntN(10); {
		case n < 4:
			tasks := make([]holdfast.NewTask, 1+random.IntN(4))
			for i := range tasks {
				tasks[i] = orderedTask(keys[random.IntN(len(keys))])
			}
			list, inserted := s.insertOrdered(tasks...)
			all = append(all, list...)
			for _, entry := range inserted.Entries {
				for _, task := range s.mustClaim(worker, entry.Tickets...) {
					running[task.ID] = task
				}
			}
		case n < 8:
			if len(running) > 0 {
				list := slices.Sorted(maps.Keys(running))
				id := list[random.IntN(len(list))]
				s.endRandomly(random, running[id])
				delete(running, id)
			}
		case len(all) > 0:
			if id := all[random.IntN(len(all))]; running[id].ID == 0 {
				s.changeRandomly(random, s.task(id))
			}
		}
		for _, ticket := range s.dueTickets() {
			task := s.mustClaim(worker, ticket)[0]
			running[task.ID] = task
		}
		active := map[string]holdfast.TaskID{}
		for id, task := range running {
			if other := active[task.Key]; other != 0 {
				s.Fatalf("the tasks %s and %s of the key %s run at the same time", other, id, task.Key)
			}
			active[task.Key] = id
		}
	}
	s.endAll(worker, all, running)
}

// endAll lets all tasks end, and archives dead tasks that hold a key. It checks that the tasks of a key start in their
// order. Its limit is a number of rounds without progress, not a time, because a store on a busy machine takes a
// minute.
func (s *suite) endAll(worker holdfast.WorkerID, all []holdfast.TaskID, running map[holdfast.TaskID]holdfast.Task) {
	open := make(map[holdfast.TaskID]string, len(all)) // the keys of the tasks that have not ended
	for _, id := range all {
		if task := s.task(id); !task.State.Final() {
			open[id] = task.Key
		}
	}
	const patience = 1000
	for idle := 0; len(open) > 0; idle++ {
		if idle == patience {
			s.Fatalf("%d tasks have not ended after %d rounds without progress: %v", len(open), patience, open)
		}
		for id, task := range running {
			if s.move(task, holdfast.Returned(nil)).State.Final() {
				delete(open, id)
				idle = 0
			}
			delete(running, id)
		}
		for _, ticket := range s.dueTickets() {
			task := s.mustClaim(worker, ticket)[0]
			for id, key := range open { // no open task of the key has a lower id
				if id < task.ID && key == task.Key {
					s.Fatalf("task %s starts before task %s", task.ID, id)
				}
			}
			running[task.ID] = task
		}
		dead, err := s.OrderedKeys(s.ctx, true, 100)
		s.must(err)
		for _, key := range dead {
			s.move(s.task(key.Active), holdfast.Requested(holdfast.EventArchive))
		}
	}
}

// endRandomly ends an attempt: it succeeds, is retried, or dies with a random policy.
func (s *suite) endRandomly(random *rand.Rand, task holdfast.Task) {
	switch random.IntN(5) {
	case 0:
		s.move(task, holdfast.Returned(errors.New("no")))
	case 1:
		p := policy()
		p.AfterDeath = []holdfast.AfterDeath{holdfast.AfterDeathBlock, holdfast.AfterDeathSkip}[random.IntN(2)]
		move, err := holdfast.Settle(task, holdfast.Returned(holdfast.Permanent(errors.New("no"))), task.CreatedAt, p)
		s.must(err)
		s.apply(move)
	default:
		s.move(task, holdfast.Returned(nil))
	}
}

// changeRandomly changes a task that does not run, as a person can.
func (s *suite) changeRandomly(random *rand.Rand, task holdfast.Task) {
	switch {
	case task.State == holdfast.Ready:
		s.move(task, holdfast.Requested(holdfast.EventCancel))
	case task.State == holdfast.Dead && random.IntN(2) == 0:
		s.move(task, holdfast.Requested(holdfast.EventArchive))
	case task.State == holdfast.Dead || task.State == holdfast.Cancelled:
		s.retry(task.ID)
	}
}

// testOrderConcurrent stores and completes tasks of a few keys at the same time, and checks the order of the starts.
func testOrderConcurrent(s *suite) {
	const callers, calls, keys = 4, 25, 3
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for call := range calls {
				s.insertUntilStored(orderedTask(fmt.Sprint((caller+call)%keys)), orderedTask(fmt.Sprint(call%keys)))
			}
		})
	}
	runs := &orderedRuns{suite: s, started: make(map[string][]holdfast.TaskID), left: callers * calls * 2}
	for range 3 {
		worker := s.registerWorker()
		group.Go(func() {
			for !runs.ended() {
				if err := runs.run(worker); err != nil {
					s.Error(err)
				}
			}
		})
	}
	group.Wait()
	for key, list := range runs.started {
		if !slices.IsSorted(list) {
			s.Errorf("the tasks of the key %s started in the order %v", key, list)
		}
	}
}

// insertUntilStored stores tasks. It tries again while other transactions hold their keys.
func (s *suite) insertUntilStored(tasks ...holdfast.NewTask) {
	for !s.Failed() {
		switch _, err := s.Insert(s.ctx, tasks, 0); {
		case err == nil:
			return
		case !errors.Is(err, holdfast.ErrUnavailable):
			s.Error(err)
		}
	}
}

// orderedRuns has the tasks that several workers have run.
type orderedRuns struct {
	*suite
	mu      sync.Mutex
	started map[string][]holdfast.TaskID // by key, in the order of the starts
	left    int                          // number of tasks that are not done
}

func (r *orderedRuns) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left == 0 || r.Failed()
}

// run takes the tickets that a janitor would publish now, and completes their tasks.
func (r *orderedRuns) run(worker holdfast.WorkerID) error {
	tickets, err := r.takeTickets()
	if err != nil || len(tickets) == 0 {
		return err
	}
	claims, err := r.Claim(r.ctx, worker, kinds, tickets, store.IntoExecutors)
	if err != nil {
		return err
	}
	moves := r.start(claims)
	accepted, err := r.Apply(r.ctx, moves)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, yes := range accepted {
		if yes {
			r.left--
		}
	}
	return err
}

// takeTickets does the work of a janitor for ordered tasks, and returns the tickets instead of publishing them.
func (r *orderedRuns) takeTickets() (tickets []message.Ticket, err error) {
	_, err = r.DispatchOutbox(r.ctx, store.Queues{}, 10, func(_ context.Context, entries []store.OutboxEntry) []bool {
		for _, entry := range entries {
			tickets = append(tickets, entry.Tickets...)
		}
		return repeated(true, len(entries))
	})
	if err != nil {
		return nil, err
	}
	_, err = r.DispatchDue(r.ctx, store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool {
		for _, d := range due {
			tickets = append(tickets, d.Ticket)
		}
		return repeated(true, len(due))
	})
	if err != nil {
		return nil, err
	}
	_, err = r.ReleaseBlocked(r.ctx, 100)
	return tickets, err
}

// start records the claimed tasks as started, and returns the transitions of their successes.
func (r *orderedRuns) start(claims []store.Claim) (moves []holdfast.Transition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, claim := range claims {
		if claim.Verdict == store.Claimed {
			r.started[claim.Task.Key] = append(r.started[claim.Task.Key], claim.Task.ID)
			moves = append(moves, r.settle(*claim.Task, holdfast.Returned(nil)))
		}
	}
	return moves
}
