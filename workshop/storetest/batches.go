package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// batch returns a running batch.
func (s *suite) batch(name string) store.Plan {
	s.Helper()
	return s.createPlan(store.Plan{Kind: store.BatchKind, Name: name, State: store.PlanRunning, Spec: json.RawMessage(`{}`)})
}

// members stores tasks as members of a plan. It returns the plan and the result of the insert.
func (s *suite) members(p store.Plan, tasks ...holdfast.NewTask) (store.Plan, store.Inserted) {
	s.Helper()
	var inserted store.Inserted
	stepped, err := s.StepPlan(s.ctx, store.PlanStep{From: p, Insert: tasks, Members: true}, func(got store.Inserted) (store.Plan, []store.PlanItem) {
		inserted = got
		return p, nil
	})
	s.must(err)
	return stepped, inserted
}

// finished claims tasks, and stores that they are done.
func (s *suite) finished(worker holdfast.WorkerID, tickets ...holdfast.TaskID) {
	s.Helper()
	var moves []holdfast.Transition
	for _, task := range s.mustClaim(worker, firstTickets(tickets)...) {
		moves = append(moves, s.settle(task, holdfast.Returned(nil)))
	}
	s.apply(moves...)
}

// firstTickets returns the tickets for the first attempts of tasks.
func firstTickets(tasks []holdfast.TaskID) (tickets []message.Ticket) {
	for _, id := range tasks {
		tickets = append(tickets, message.Ticket{Task: id, Attempt: 1})
	}
	return tickets
}

func insertedIDs(inserted store.Inserted) (list []holdfast.TaskID) {
	for _, task := range inserted.Tasks {
		list = append(list, task.ID)
	}
	return list
}

func testListAllPlans(s *suite) {
	byName := map[string]store.ID{}
	for _, name := range []string{"b", "a", "done", "cancelled", "stopped"} {
		p := s.createPlan(s.planOf(name, 0))
		byName[name] = p.ID
		if state := store.PlanState(name); len(name) > 1 {
			to := p
			to.State = state
			stepped, err := s.stepTo(p, to)
			s.must(err)
			if stepped.EndedAt.IsZero() == state.Ended() || stepped.State != state {
				s.Errorf("the plan is %+v", stepped)
			}
		}
	}
	byName["batch"] = s.batch("batch").ID
	for _, c := range []struct {
		filter store.PlanFilter
		want   string
	}{
		{store.PlanFilter{Kind: store.ScheduleKind}, "a b stopped"},
		{store.PlanFilter{Kind: store.ScheduleKind, States: []store.PlanState{store.PlanRunning, store.PlanDone}}, "a b"},
		{store.PlanFilter{Kind: store.ScheduleKind, IDs: []store.ID{byName["b"], byName["done"], byName["batch"]}}, "b"},
		{store.PlanFilter{Ended: true}, "batch stopped cancelled done a b"},
		{store.PlanFilter{Ended: true, Kind: store.ScheduleKind}, "stopped cancelled done a b"},
		{store.PlanFilter{Ended: true, Kind: store.ScheduleKind, Limit: 2}, "stopped cancelled"},
		{store.PlanFilter{Ended: true, Kind: store.ScheduleKind, Before: byName["cancelled"], Limit: 2}, "done a"},
		{store.PlanFilter{Ended: true, States: []store.PlanState{store.PlanDone, store.PlanCancelled}}, "cancelled done"},
		{store.PlanFilter{Ended: true, IDs: []store.ID{byName["b"], byName["done"], byName["batch"], math.MaxInt64}}, "batch done b"},
		{store.PlanFilter{Ended: true, IDs: []store.ID{byName["done"]}}, "done"},
	} {
		found, err := s.ListPlans(s.ctx, c.filter)
		s.must(err)
		if got := namesOf(found); got != c.want {
			s.Errorf("%+v: found %s, want %s", c.filter, got, c.want)
		}
	}
}

func testPlanMembers(s *suite) {
	p := s.batch("a")
	if got := s.listOf(store.Filter{Batch: holdfast.BatchID(p.ID)}); len(got) > 0 {
		s.Errorf("a new batch has the tasks %v", got)
	}
	tasks := make([]holdfast.NewTask, 1000)
	for i := range tasks {
		tasks[i] = newTask()
		tasks[i].Payload = json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))
	}
	var ranges []store.IDRange
	var inserted store.Inserted
	p, err := s.StepPlan(s.ctx, store.PlanStep{From: p, Insert: tasks, Members: true}, func(got store.Inserted) (store.Plan, []store.PlanItem) {
		inserted, ranges = got, store.StoredIDs(got.Tasks)
		return p, []store.PlanItem{{Item: "1", State: store.ItemOpen}}
	})
	s.must(err)
	if len(inserted.Tasks) != len(tasks) || len(ranges) == 0 || len(inserted.Entries) != 1 || len(inserted.Entries[0].Tickets) != len(tasks) {
		s.Fatalf("the step stored %d tasks, %v and %d entries", len(inserted.Tasks), ranges, len(inserted.Entries))
	}
	for _, i := range []int{0, 1, 999} {
		task := s.task(inserted.Tasks[i].ID)
		if task.Batch != holdfast.BatchID(p.ID) || string(task.Payload) != string(tasks[i].Payload) || task.Queue != defaultQueue || task.Attempt != 1 {
			s.Errorf("member %d is %+v", i, task)
		}
	}
	p, one := s.members(p, newTask())
	if got := s.task(one.Tasks[0].ID); got.Batch != holdfast.BatchID(p.ID) {
		s.Errorf("a single member is %+v", got)
	}
	stepped, err := s.stepTo(p, p, newTask())
	s.must(err)
	page, err := s.List(s.ctx, store.Filter{Limit: 3})
	s.must(err)
	if page.Tasks[0].Batch != 0 || page.Tasks[1].Batch != holdfast.BatchID(p.ID) || page.Tasks[2].Batch != holdfast.BatchID(p.ID) {
		s.Errorf("the newest tasks are %+v", page.Tasks)
	}
	if read, err := s.TasksByID(s.ctx, insertedIDs(one)); err != nil || len(read) != 1 || read[0].Batch != holdfast.BatchID(p.ID) {
		s.Errorf("the member is read as %+v, %v", read, err)
	}
	text, err := json.Marshal(page.Tasks[1])
	s.must(err)
	if want := fmt.Sprintf(`"batch":"%s"`, p.ID); !strings.Contains(string(text), want) {
		s.Errorf("a member is %s, want %s", text, want)
	}
	if text, err := json.Marshal(page.Tasks[0]); err != nil || strings.Contains(string(text), "batch") {
		s.Errorf("another task is %s, %v", text, err)
	}
	if n := DispatchOutbox(s.T, s); n != 1002 {
		s.Errorf("%d tickets are published, want 1002", n)
	}
	// A member is claimed and retried like any other task.
	claimed := s.mustClaim(s.registerWorker(), firstTickets(insertedIDs(one))...)[0]
	if claimed.Batch != 0 {
		s.Errorf("the claim has read the batch of %+v", claimed)
	}
	s.move(claimed, holdfast.Returned(errors.New("failed")))
	if got := s.task(claimed.ID); got.Batch != holdfast.BatchID(stepped.ID) || got.Attempt != 2 {
		s.Errorf("after a failure, the member is %+v", got)
	}
}

func testPlanMixedMembers(s *suite) {
	taken := newTask()
	taken.Unique = "taken"
	holder := s.insert(taken)[0].Task
	p := s.batch("a")
	later, queued, tagged, unique, topical := newTask(), newTask(), newTask(), newTask(), newTask()
	later.Delay, queued.Queue = time.Hour, "slow"
	tagged.Tags, tagged.Key, unique.Unique, topical.Topic = []string{"red"}, "k", "u", "site"
	for _, tasks := range [][]holdfast.NewTask{{later, queued}, {tagged, newTask()}, {taken, topical, unique, taken}} {
		var inserted store.Inserted
		p, inserted = s.members(p, tasks...)
		for i, task := range inserted.Tasks {
			got := s.task(task.ID)
			switch {
			case tasks[i].Unique == "taken" && (!task.Duplicate || task.ID != holder || got.Batch != 0):
				s.Errorf("the duplicate is %+v: %+v", task, got)
			case tasks[i].Unique != "taken" && (task.Duplicate || got.Batch != holdfast.BatchID(p.ID)):
				s.Errorf("the member is %+v: %+v", task, got)
			}
		}
	}
	if got := s.listOf(store.Filter{Batch: holdfast.BatchID(p.ID)}); len(got) != 6 {
		s.Errorf("the members are %v", got)
	}
	// Only duplicates: the bounds of the members stay.
	p, _ = s.members(p, taken)
	if got := s.listOf(store.Filter{Batch: holdfast.BatchID(p.ID)}); len(got) != 6 {
		s.Errorf("the members are %v", got)
	}
}

func testPlanStepFence(s *suite) {
	p, worker := s.batch("a"), s.registerWorker()
	task := s.mustClaim(worker, s.insert(newTask())...)[0]
	fence := store.Fence{Task: task.ID, Attempt: task.Attempt, Worker: worker}
	step := func(from store.Plan, fence store.Fence, tasks ...holdfast.NewTask) (store.Plan, error) {
		return s.StepPlan(s.ctx, store.PlanStep{From: from, Insert: tasks, Members: true, Fence: &fence}, func(store.Inserted) (store.Plan, []store.PlanItem) {
			return from, []store.PlanItem{{Item: "1", State: store.ItemOpen}}
		})
	}
	for _, tasks := range [][]holdfast.NewTask{nil, {newTask()}} {
		for _, other := range []store.Fence{
			{Task: task.ID + 1, Attempt: task.Attempt, Worker: worker}, {Task: task.ID, Attempt: task.Attempt + 1, Worker: worker},
			{Task: task.ID, Attempt: task.Attempt, Worker: worker + 1},
		} {
			if _, err := step(p, other, tasks...); !errors.Is(err, store.ErrFenced) {
				s.Errorf("a step of %+v, the task is %+v: %v", other, task, err)
			}
		}
	}
	if got, items := s.plan(p.ID), s.itemsOf(p, store.PlanItemFilter{State: store.ItemOpen}); got.Version != p.Version || items != "" {
		s.Errorf("after refused steps, the plan is %+v with the items %s", got, items)
	}
	stepped, err := step(p, fence, newTask())
	s.must(err)
	if _, err := step(p, fence, newTask()); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("a late step of the attempt: %v", err)
	}
	s.move(task, holdfast.Returned(nil))
	if _, err := step(stepped, fence, newTask()); !errors.Is(err, store.ErrFenced) {
		s.Errorf("a step of a finished attempt: %v", err)
	}
	if got := s.listOf(store.Filter{Batch: holdfast.BatchID(p.ID)}); len(got) != 1 {
		s.Errorf("the members are %v", got)
	}
}

// Steps that accept any version count up a number in the progress of a plan, while other steps change the plan.
func testPlanStepAccept(s *suite) {
	p := s.batch("a")
	id := store.Plan{Kind: p.Kind, ID: p.ID}
	refused := errors.New("refused")
	for _, err := range []error{refused, holdfast.ErrConflict} {
		_, got := s.StepPlan(s.ctx, store.PlanStep{From: id, Accept: func(store.Plan, time.Time) error { return err }, Insert: []holdfast.NewTask{newTask()}},
			func(store.Inserted) (store.Plan, []store.PlanItem) { return p, nil })
		if !errors.Is(got, err) {
			s.Errorf("a step that is refused with %v returns %v", err, got)
		}
	}
	missing := store.PlanStep{From: store.Plan{Kind: p.Kind, ID: p.ID + 1}, Accept: func(store.Plan, time.Time) error { return nil }}
	if _, err := s.StepPlan(s.ctx, missing, func(store.Inserted) (store.Plan, []store.PlanItem) { return p, nil }); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("a step without a plan returns %v", err)
	}
	if got := s.plan(p.ID); got.Version != p.Version || len(s.listOf(store.Filter{Limit: 10})) != 0 {
		s.Errorf("after refused steps, the plan is %+v", got)
	}
	const steppers, steps = 3, 10
	before := s.now()
	var processes sync.WaitGroup
	for range steppers {
		processes.Go(func() {
			for range steps {
				var from store.Plan
				accept := func(p store.Plan, now time.Time) error {
					if from = p; p.ID != id.ID || now.Before(before) || now.After(before.Add(time.Hour)) {
						return fmt.Errorf("at %s, %w: %+v at %s", before, refused, p, now)
					}
					return nil
				}
				_, err := s.StepPlan(s.ctx, store.PlanStep{From: id, Accept: accept, Insert: []holdfast.NewTask{newTask()}, Members: true},
					func(store.Inserted) (store.Plan, []store.PlanItem) {
						var n int
						to := from
						_ = json.Unmarshal(from.Progress, &n) // the first step reads {}
						to.Progress = json.RawMessage(strconv.Itoa(n + 1))
						return to, []store.PlanItem{{Item: fmt.Sprint(n), State: store.ItemOpen}}
					})
				if err != nil {
					s.Error(err)
				}
			}
		})
	}
	processes.Wait()
	got, items := s.plan(p.ID), strings.Fields(s.itemsOf(p, store.PlanItemFilter{State: store.ItemOpen}))
	if string(got.Progress) != strconv.Itoa(steppers*steps) || len(items) != steppers*steps || got.Version != p.Version+steppers*steps {
		s.Errorf("after %d steps, the plan is %+v with the items %v", steppers*steps, got, items)
	}
}

// plan returns a plan by its id, also an ended one.
func (s *suite) plan(id store.ID) store.Plan {
	s.Helper()
	found, err := s.ListPlans(s.ctx, store.PlanFilter{IDs: []store.ID{id}, Ended: true})
	s.must(err)
	if len(found) != 1 || found[0].ID != id {
		s.Fatalf("found %+v, want the plan %s", found, id)
	}
	return found[0]
}

// members returns chunks of the members of a plan.
func members(p store.Plan, chunks ...[]store.IDRange) (selected []store.PlanChunk) {
	for _, ids := range chunks {
		selected = append(selected, store.PlanChunk{Plan: p.ID, Tasks: ids})
	}
	return selected
}

// tally returns the counts of chunks as texts: the states with tasks, and the missing ids.
func (s *suite) tally(p store.Plan, chunks ...[]store.IDRange) (texts []string) {
	s.Helper()
	tallies, err := s.PlanTally(s.ctx, members(p, chunks...))
	s.must(err)
	for _, tally := range tallies {
		var parts []string
		for _, state := range holdfast.States() {
			if n, ok := tally.By[state]; !ok {
				s.Errorf("the state %s is missing: %+v", state, tally)
			} else if n > 0 {
				parts = append(parts, fmt.Sprint(state, " ", n))
			}
		}
		if tally.Missing != 0 {
			parts = append(parts, fmt.Sprint("missing ", tally.Missing))
		}
		texts = append(texts, strings.Join(parts, ", "))
	}
	return texts
}

func testPlanTally(s *suite) {
	p, worker := s.batch("a"), s.registerWorker()
	later, latest := newTask(), newTask()
	later.Delay, latest.Delay = time.Hour, 2*time.Hour
	p, first := s.members(p, newTask(), newTask(), newTask(), newTask(), newTask())
	p, second := s.members(p, latest, later)
	one, two := store.StoredIDs(first.Tasks), store.StoredIDs(second.Tasks)
	check := func(want ...string) []store.Tally {
		s.Helper()
		if got := s.tally(p, one, two, nil); !slices.Equal(got, append(want, "")) {
			s.Errorf("counted %q, want %q", got, want)
		}
		tallies, err := s.PlanTally(s.ctx, members(p, one, two))
		s.must(err)
		return tallies
	}
	tallies := check("ready 5", "ready 2")
	if want := s.task(second.Tasks[1].ID).NextRunAt; !tallies[1].NextRunAt.Equal(want) {
		s.Errorf("the next task runs at %s, want %s", tallies[1].NextRunAt, want)
	}
	ids := insertedIDs(first)
	s.finished(worker, ids[0], ids[1])
	running := s.mustClaim(worker, firstTickets(ids[2:4])...)
	s.move(running[1], holdfast.Returned(holdfast.Permanent(errors.New("broken"))))
	check("ready 1, running 1, done 2, dead 1", "ready 2")
	s.move(running[0], holdfast.Returned(nil))
	s.finished(worker, ids[4])
	if tallies := check("done 4, dead 1", "ready 2"); !tallies[0].NextRunAt.IsZero() {
		s.Errorf("the next of no ready tasks runs at %s", tallies[0].NextRunAt)
	}
	wide := []store.IDRange{{First: two[0].First, Last: two[0].First}, {First: math.MaxInt64 - 1, Last: math.MaxInt64}}
	if got := s.tally(p, wide); !slices.Equal(got, []string{"ready 1, missing 2"}) {
		s.Errorf("counted %q", got)
	}
	other := s.batch("b")
	if got := s.tally(other, one, two); !slices.Equal(got, []string{"missing 5", "missing 2"}) {
		s.Errorf("counted for another plan: %q", got)
	}
	all := []store.PlanChunk{{Tasks: one}, {Plan: p.ID + 1000, Tasks: one}}
	if tallies, err := s.PlanTally(s.ctx, all); err != nil || tallies[0].Missing != 0 || tallies[1].Missing != 5 {
		s.Errorf("counted %+v, %v; want five tasks of any plan, and none of another plan", tallies, err)
	}
	if tallies, err := s.PlanTally(s.ctx, nil); err != nil || len(tallies) != 0 {
		s.Errorf("counted for no chunks: %+v, %v", tallies, err)
	}
}

// Other inserts, and steps of other plans, take ids between those of a chunk.
func testPlanTallyAmongOthers(s *suite) {
	p, other := s.batch("a"), s.batch("b")
	var mine, theirs []store.InsertedTask
	for range 3 {
		var inserted store.Inserted
		p, inserted = s.members(p, newTask(), newTask())
		mine = append(mine, inserted.Tasks...)
		s.insert(newTask())
		other, inserted = s.members(other, newTask())
		theirs = append(theirs, inserted.Tasks...)
	}
	ranges := store.StoredIDs(mine)
	if len(ranges) != 3 {
		s.Fatalf("the ranges of ids are %v", ranges)
	}
	if got := s.tally(p, ranges, ranges[1:2]); !slices.Equal(got, []string{"ready 6", "ready 2"}) {
		s.Errorf("counted %q", got)
	}
	if got := s.tally(other, store.StoredIDs(theirs)); !slices.Equal(got, []string{"ready 3"}) {
		s.Errorf("counted %q for the other batch", got)
	}
	whole := []store.IDRange{{First: ranges[0].First, Last: ranges[2].Last}}
	if got := s.tally(p, whole); !slices.Equal(got, []string{fmt.Sprint("ready 6, missing ", whole[0].Size()-6)}) {
		s.Errorf("counted %q in all ids", got)
	}
	s.Logf("the ranges are %v", ranges)
}

// listOf returns the ids of the tasks that a filter selects, with the pages of a List, and checks Count.
func (s *suite) listOf(f store.Filter) (found []holdfast.TaskID) {
	s.Helper()
	counts, err := s.Count(s.ctx, f)
	s.must(err)
	for {
		page, err := s.List(s.ctx, f)
		s.must(err)
		found = append(found, idsOf(page.Tasks)...)
		if f.Before = page.Next; page.Next == 0 {
			break
		}
	}
	total := int64(0)
	for _, n := range counts.By {
		total += n
	}
	if total != int64(len(found)) {
		s.Errorf("%+v counts %d tasks, lists %v", f, total, found)
	}
	return found
}

func testListBatch(s *suite) {
	before := s.insert(newTask())[0].Task
	p, other, worker := s.batch("a"), s.batch("b"), s.registerWorker()
	keyed := newTask()
	keyed.Key, keyed.Tags, keyed.Unique = "k", []string{"red"}, "u"
	p, first := s.members(p, newTask(), newTask())
	stranger := newTask()
	stranger.Key, stranger.Tags = "k", []string{"red"}
	s.insert(stranger)
	other, others := s.members(other, stranger, newTask())
	p, second := s.members(p, keyed, newTask(), newTask())
	after := s.insert(newTask())[0].Task
	ids := append(insertedIDs(first), insertedIDs(second)...)
	s.finished(worker, ids[0])
	s.move(s.mustClaim(worker, firstTickets(ids[1:2])...)[0], holdfast.Returned(holdfast.Permanent(errors.New("broken"))))
	s.mustClaim(worker, firstTickets(ids[3:4])...)
	for _, c := range []struct {
		name   string
		filter store.Filter
		want   []int
	}{
		{"all", store.Filter{}, []int{4, 3, 2, 1, 0}},
		{"pages", store.Filter{Limit: 2}, []int{4, 3, 2, 1, 0}},
		{"done", store.Filter{States: []holdfast.State{holdfast.Done}}, []int{0}},
		{"dead", store.Filter{States: []holdfast.State{holdfast.Dead}}, []int{1}},
		{"running", store.Filter{States: []holdfast.State{holdfast.Running}}, []int{3}},
		{"an error", store.Filter{Error: "broken"}, []int{1}},
		{"a key", store.Filter{Key: "k"}, []int{2}},
		{"a tag", store.Filter{Tags: []string{"red"}}, []int{2}},
		{"a unique key", store.Filter{Unique: "u"}, []int{2}},
		{"ids", store.Filter{IDs: []holdfast.TaskID{ids[0], ids[4], before, after}}, []int{4, 0}},
		{"from an id", store.Filter{MinID: ids[2]}, []int{4, 3, 2}},
		{"through an id", store.Filter{MaxID: ids[2]}, []int{2, 1, 0}},
		{"below all", store.Filter{MaxID: before}, nil},
		{"above all", store.Filter{MinID: after}, nil},
		{"wide bounds", store.Filter{MinID: before, MaxID: after}, []int{4, 3, 2, 1, 0}},
	} {
		c.filter.Batch = holdfast.BatchID(p.ID)
		var want []holdfast.TaskID
		for _, i := range c.want {
			want = append(want, ids[i])
		}
		if got := s.listOf(c.filter); !slices.Equal(got, want) {
			s.Errorf("%s: listed %v, want %v", c.name, got, want)
		}
	}
	_, last := s.members(other, newTask())
	if got, want := s.listOf(store.Filter{Batch: holdfast.BatchID(other.ID)}), append(insertedIDs(others), last.Tasks[0].ID); len(got) != 3 || got[0] != want[2] || got[1] != want[1] || got[2] != want[0] {
		s.Errorf("the other batch has %v, want %v", got, want)
	}
	if got := s.listOf(store.Filter{Batch: math.MaxInt64}); len(got) != 0 {
		s.Errorf("an unknown batch has %v", got)
	}
}

func testPruneBatch(s *suite) {
	worker := s.registerWorker()
	p, schedule := s.batch("a"), s.createPlan(s.planOf("s", 0))
	p, batched := s.members(p, newTask(), newTask(), newTask())
	schedule, fired := s.members(schedule, newTask())
	free := s.insert(newTask())[0].Task
	ids := insertedIDs(batched)
	s.finished(worker, append([]holdfast.TaskID{free, fired.Tasks[0].ID}, ids[:2]...)...)
	s.move(s.task(ids[2]), holdfast.Requested(holdfast.EventCancel))
	ages := store.PruneAges{Done: time.Microsecond, Cancelled: time.Microsecond, Archived: time.Microsecond}
	s.prune(ages, 2) // the free task, and that of the open schedule
	if got := s.tally(p, store.StoredIDs(batched.Tasks)); !slices.Equal(got, []string{"done 2, cancelled 1"}) {
		s.Errorf("the open batch has %q", got)
	}
	if n, err := s.Prune(s.ctx, ages, 100); err != nil || n != 0 {
		s.Errorf("pruned %d rows of an open batch, %v", n, err)
	}
	to := p
	to.State = store.PlanCancelled
	_, err := s.StepPlan(s.ctx, store.PlanStep{From: p}, func(store.Inserted) (store.Plan, []store.PlanItem) {
		return to, []store.PlanItem{{Item: "1", State: store.ItemClosed}}
	})
	s.must(err)
	s.prune(store.PruneAges{Cancelled: time.Microsecond}, 1) // this keeps the batch
	if got := s.tally(p, store.StoredIDs(batched.Tasks)); !slices.Equal(got, []string{"done 2, missing 1"}) {
		s.Errorf("the ended batch has %q", got)
	}
	s.prune(ages, 4) // two tasks, the item and the batch
	if got := s.tally(p, store.StoredIDs(batched.Tasks)); !slices.Equal(got, []string{"missing 3"}) {
		s.Errorf("the ended batch has %q", got)
	}
	if found, err := s.ListPlans(s.ctx, store.PlanFilter{Ended: true}); err != nil || namesOf(found) != "s" {
		s.Errorf("the plans are %s, %v", namesOf(found), err)
	}
	if got := s.itemsOf(p, store.PlanItemFilter{State: store.ItemClosed}); got != "" {
		s.Errorf("the pruned batch has the items %s", got)
	}
	if got := s.planByName("s"); got.ID != schedule.ID {
		s.Errorf("the schedule is %+v", got)
	}
}
