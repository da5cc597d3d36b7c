package surface

import (
	"context"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// Fault is a fault that a check of all tasks has found.
type Fault struct {
	Kind        store.FaultKind   `json:"kind"`
	Code        store.FaultCode   `json:"code"`
	Tasks       int               `json:"tasks" doc:"How many tasks have the fault; 10000 means that many or more."`
	Samples     []holdfast.TaskID `json:"samples" doc:"Some of the tasks."`
	Description string            `json:"description"`
	Remedy      string            `json:"remedy" doc:"What to do about it."`
}

// VerifyTasks looks for tasks that break an invariant, and returns the faults and the number of their tasks. It changes
// no task. hint returns the text of a hint. VerifyTasks calls progress, if it is not nil, after each step.
func VerifyTasks(
	ctx context.Context, b *app.Backend, hint func(holdfast.Hint) string, progress func(store.VerifyPart, holdfast.TaskID),
) (faults []Fault, tasks int, err error) {
	report, err := b.VerifyTasks(ctx, progress)
	if err != nil {
		return nil, 0, err
	}
	faults = []Fault{}
	for _, result := range report.Results {
		for _, found := range result.Counts {
			fault, _ := store.FaultOf(found.Code)
			faults = append(faults, Fault{
				fault.Kind, found.Code, found.Tasks, append([]holdfast.TaskID{}, found.Samples...), fault.Description, hint(fault.Remedy),
			})
			tasks += found.Tasks
		}
	}
	return faults, tasks, nil
}
