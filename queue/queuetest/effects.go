package queuetest

import (
	"encoding/json"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// RequireOutput decodes the output of a task, as [queue.Output] stored it, into a pointer. It fails the test if the
// task has none, because it is not done or its handler did not call Output.
func (q *Queue) RequireOutput(task holdfast.Task, into any) {
	q.t.Helper()
	q.requireValue(task, store.OutputData, "output", into)
}

// RequireStep decodes the value that [queue.Once] stored for a step of a task into a pointer. It fails the test if the
// step has not succeeded. A test that only needs to know that may pass new(any).
func (q *Queue) RequireStep(task holdfast.Task, step string, into any) {
	q.t.Helper()
	q.requireValue(task, store.StepData(step), "value of the step "+step, into)
}

// RequireCheckpoint decodes the checkpoint of a task, as [queue.Save] stored it, into a pointer. It fails the test if
// the task has none.
func (q *Queue) RequireCheckpoint(task holdfast.Task, into any) {
	q.t.Helper()
	q.requireValue(task, store.CheckpointData, "checkpoint", into)
}

// Steps returns the names of the steps of a task that have succeeded, sorted.
func (q *Queue) Steps(task holdfast.Task) (steps []string) {
	q.t.Helper()
	for _, value := range q.values(task) {
		if step := value.Step(); step != "" {
			steps = append(steps, step)
		}
	}
	return steps
}

// requireValue decodes the value with a name. what describes it.
func (q *Queue) requireValue(task holdfast.Task, name, what string, into any) {
	q.t.Helper()
	found := q.values(task, name)
	if len(found) == 0 {
		q.t.Fatalf("queuetest: task %s of type %s is %s and has no %s", task.ID, task.Type, task.State, what)
	}
	if err := json.Unmarshal(found[0].Value, into); err != nil {
		q.t.Fatalf("queuetest: the %s of task %s is %s: %v", what, task.ID, found[0].Value, err)
	}
}

// values returns the values of a task with one of the names, or all values without names.
func (q *Queue) values(task holdfast.Task, names ...string) []store.Datum {
	q.t.Helper()
	found, err := q.store.TaskData(q.ctx(), []holdfast.TaskID{task.ID}, names...)
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	return found
}
