package console

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// dead is the view of the groups of dead tasks.
type dead struct {
	Now      time.Time
	Q        string
	Bad      place // why the search cannot be used
	Resolved bool
	Groups   []deadGroup
	Tasks    int64
}

// deadGroup is a group in the list.
type deadGroup struct {
	store.DeathGroup
	Title      string
	Query      string // the search for its dead tasks
	Operations []store.Operation
}

// groupLimit is the maximum number of groups on a page.
const groupLimit = 100

func (c *Console) dead(ctx context.Context, r *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	v := dead{Now: now, Q: r.q("q"), Resolved: r.q("resolved") != ""}
	f, err := r.filter(v.Q)
	if err != nil {
		v.Bad = placeOf(v.Q, err)
		return v, nil
	}
	selected, err := surface.GroupFilter(f)
	if err != nil {
		v.Bad = placeOf(v.Q, err)
		return v, nil
	}
	selected.Resolved, selected.Limit = v.Resolved, groupLimit
	groups, err := c.b.Store.DeathGroups(ctx, selected)
	if err != nil {
		return nil, err
	}
	operations, err := c.b.Store.ListOperations(ctx, store.OperationFilter{States: openOperations, Limit: groupLimit})
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		row := deadGroup{DeathGroup: g, Title: surface.GroupTitle(g), Query: surface.GroupQuery(g.Fingerprint)}
		for _, o := range operations {
			if o.Filter.Fingerprint == g.Fingerprint {
				row.Operations = append(row.Operations, o)
			}
		}
		v.Groups = append(v.Groups, row)
		v.Tasks += g.Tasks
	}
	return v, nil
}

// openOperations are the states of operations that have not ended.
var openOperations = []store.OperationState{store.OperationPlanned, store.OperationRunning, store.OperationPaused, store.OperationStopped}

// group is the view of a group of dead tasks.
type group struct {
	Now time.Time
	surface.DeathGroupDetails
	Title      string
	Query      string
	Tag        string // the version, for changes
	Sparks     string
	Samples    []surface.ListedTask
	Operations []store.Operation
}

// sampleLimit is the number of tasks that the page of a group shows.
const sampleLimit = 10

func (c *Console) group(ctx context.Context, r *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	details, err := surface.DeathGroup(ctx, c.b, r.PathValue("fingerprint"))
	if err != nil {
		return nil, err
	}
	f, err := r.filter(surface.GroupQuery(details.Fingerprint))
	if err != nil {
		return nil, err
	}
	f.Limit = sampleLimit
	samples, err := surface.List(ctx, c.b, f)
	if err != nil {
		return nil, err
	}
	operations, err := c.b.Store.ListOperations(ctx, store.OperationFilter{Limit: groupLimit})
	if err != nil {
		return nil, err
	}
	operations = slices.DeleteFunc(operations, func(o store.Operation) bool { return o.Filter.Fingerprint != details.Fingerprint })
	hours := slices.Clone(details.Hours[:])
	slices.Reverse(hours)
	return group{
		Now: now, DeathGroupDetails: details, Title: surface.GroupTitle(details.DeathGroup), Query: surface.GroupQuery(details.Fingerprint), Tag: fmt.Sprintf("%q", fmt.Sprint(details.Version)),
		Sparks: sparks(hours), Samples: samples.Tasks, Operations: operations,
	}, nil
}

// tasks is the view of a list of tasks.
type tasks struct {
	Now     time.Time
	Q       string
	Bad     place
	Suggest []string
	Tasks   []surface.ListedTask
	Next    string         // the cursor of the next page; "" on the last one
	Partial bool           // the search has looked at a part of the tasks only
	Bulk    []store.Action // what an operation can do to all tasks that match, or to some of them
	Match   string         // how many tasks match; "" if that would need a scan
}

// taskLimit is the number of tasks on a page.
const taskLimit = 50

func (c *Console) tasks(ctx context.Context, r *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	v := tasks{Now: now, Q: r.q("q")}
	if v.Suggest, err = c.suggestions(ctx, v.Q); err != nil {
		return nil, err
	}
	f, err := r.filter(v.Q)
	if err != nil {
		v.Bad = placeOf(v.Q, err)
		return v, nil
	}
	f.Limit = taskLimit
	if before := r.q("before"); before != "" {
		if f.Before, err = holdfast.ParseTaskID(before); err != nil {
			v.Bad.Text = err.Error()
			return v, nil
		}
	}
	page, err := surface.List(ctx, c.b, f)
	if err != nil {
		return nil, err
	}
	v.Tasks = page.Tasks
	if page.Next != nil {
		v.Next, v.Partial = page.Next.String(), len(page.Tasks) < taskLimit
	}
	if len(page.Tasks) > 0 || v.Partial {
		v.Bulk = bulkOf(f)
	}
	if len(v.Bulk) > 0 {
		v.Match, err = c.matches(ctx, f, page)
	}
	return v, err
}

// matches returns how many tasks a search selects, if the store knows it without a scan.
func (c *Console) matches(ctx context.Context, f store.Filter, page surface.TaskPage) (string, error) {
	switch {
	case page.Next == nil && f.Before == 0:
		return count(len(page.Tasks)), nil
	case f.Before == 0 && f.OnlyGroups():
		counts, err := c.b.Store.Count(ctx, f)
		total := int64(0)
		for _, n := range counts.By {
			total += n
		}
		return count(total), err
	}
	return "", nil
}
