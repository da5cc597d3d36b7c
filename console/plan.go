package console

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// plan is the view of the form that starts an operation: what it would do to how many tasks. The dry run of the HTTP
// API computes it.
type plan struct {
	Now      time.Time
	Action   string
	Query    string
	Failed   problem // the operation cannot start; Failed.Detail is "" otherwise
	Place    place   // of the error in the search
	Plan     surface.Plan
	Expected time.Duration
	Samples  []surface.ListedTask
	// Except has the tasks that the query leaves out. LeftOut is how many of them match the rest of the query.
	Except  []holdfast.TaskID
	LeftOut int64
	Command string // the equivalent command line; "" if it has none
	// The texts of the form. An empty one means the default.
	Ramp, Rate, StopAbove, Limit, Reason string
}

// Retry reports whether the operation retries tasks, in steps.
func (p plan) Retry() bool { return p.Action == string(store.ActionRetry) }

// Purge reports whether the operation deletes tasks.
func (p plan) Purge() bool { return p.Action == string(store.ActionPurge) }

// Possible reports whether the operation has tasks to change.
func (p plan) Possible() bool { return p.Failed.Detail == "" && (p.Plan.Total > 0 || p.Plan.AtLeast) }

// Matching returns how many tasks match the query without its exceptions. A limit of the operation hides that.
func (p plan) Matching() int64 {
	if p.Limit != "" {
		return 0
	}
	return p.Plan.Total + p.LeftOut
}

// planSamples is the number of tasks that a plan shows.
const planSamples = 3

func (c *Console) plan(ctx context.Context, r *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	v := plan{
		Now: now, Action: r.q("action"), Query: selectionOf(r.URL.Query()), Ramp: r.q("ramp"), Rate: r.q("rate"), StopAbove: r.q("stop_above"),
		Limit: r.q("limit"), Reason: r.q("reason"),
	}
	if !slices.Contains(bulkActions, store.Action(v.Action)) {
		v.Failed.Detail = fmt.Sprintf("%.60q is not an action for many tasks; use retry, archive, restore, cancel or purge", v.Action)
		return v, nil
	}
	f, err := r.filter(v.Query)
	if err != nil {
		v.Place = placeOf(v.Query, err)
		v.Failed.Detail = v.Place.Text
		return v, nil
	}
	form := r.URL.Query()
	form.Set("query", v.Query)
	status, answer, err := c.call(r.Request, "startOperation", action{body: dryRun}, form)
	switch {
	case err != nil:
		v.Failed.Detail = err.Error()
		return v, nil
	case status != http.StatusOK:
		v.Failed = problemIn(status, answer)
		return v, nil
	}
	if err := json.Unmarshal(answer, &v.Plan); err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	v.Expected = time.Duration(v.Plan.ExpectedSeconds * float64(time.Second)).Round(time.Second)
	v.Command = commandOf(form)
	if err := c.leaveOut(ctx, &v, f); err != nil {
		return nil, err
	}
	if ids := v.Plan.Samples; len(ids) > 0 {
		page, err := surface.List(ctx, c.b, store.Filter{IDs: ids[:min(len(ids), planSamples)]})
		if err != nil {
			return nil, err
		}
		v.Samples = page.Tasks
	}
	return v, nil
}

// leaveOut adds the exceptions of a filter to a plan.
func (c *Console) leaveOut(ctx context.Context, v *plan, f store.Filter) error {
	v.Except = slices.Compact(slices.Sorted(slices.Values(f.NotIDs)))
	left := f
	left.IDs, left.NotIDs = v.Except, nil
	if len(f.IDs) > 0 {
		left.IDs = slices.DeleteFunc(slices.Clone(v.Except), func(id holdfast.TaskID) bool { return !slices.Contains(f.IDs, id) })
	}
	if len(left.IDs) == 0 { // a filter without ids would select all tasks
		return nil
	}
	counts, err := c.b.Store.Count(ctx, left)
	for _, n := range counts.By {
		v.LeftOut += n
	}
	return err
}

// selectionOf returns the search for the tasks that a person has selected in the list of a query: all tasks of the
// query, only the given ones, or all except the given ones.
func selectionOf(form url.Values) string {
	query := strings.TrimSpace(form.Get("query"))
	if ids := form["task"]; len(ids) > 0 { // the list has shown them, so they match the other terms for ids
		return strings.TrimSpace(search.Without(query, "id", "-id") + " id:" + strings.Join(ids, ","))
	}
	if ids := form["not"]; len(ids) > 0 {
		return strings.TrimSpace(query + " -id:" + strings.Join(ids, ","))
	}
	return query
}

// dryRun is the body of the dry run of a new operation.
func dryRun(form url.Values) (any, error) {
	body, err := operationBody(form)
	if err != nil {
		return nil, err
	}
	body["dry_run"] = true
	return body, nil
}

// commandOf returns the command line that starts the same operation, and "" if there is none: the command line takes
// whole percents only.
func commandOf(form url.Values) string {
	words := []string{"holdfast operation start", form.Get("action"), "--query", quoted(form.Get("query"))}
	add := func(flag, value string) {
		if value != "" {
			words = append(words, flag, quoted(value))
		}
	}
	body, err := operationBody(form)
	if err != nil {
		return ""
	}
	if ramp, ok := body["ramp"].([]int); ok {
		add("--ramp", strings.ReplaceAll(strings.Trim(fmt.Sprint(ramp), "[]"), " ", ","))
	}
	if share, ok := body["stop_above"].(float64); ok {
		percent := strconv.FormatFloat(math.Round(share*1e6)/1e4, 'f', -1, 64) // 0.29*100 is not 29
		if n, err := strconv.Atoi(percent); err != nil || n < 1 {
			return ""
		}
		add("--stop-above", percent)
	}
	for _, name := range []string{"rate", "limit"} {
		if n, ok := body[name].(int64); ok {
			add("--"+name, strconv.FormatInt(n, 10))
		}
	}
	add("--reason", strings.TrimSpace(form.Get("reason")))
	return strings.Join(words, " ")
}

// quoted returns a word for a POSIX shell.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.,:/@%+", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// bulkActions are the actions that the console offers for all tasks of a search, in the order of the buttons.
var bulkActions = []store.Action{store.ActionRetry, store.ActionArchive, store.ActionRestore, store.ActionCancel, store.ActionPurge}

// bulkOf returns the actions that can change every task of a search. The search must name the states of the tasks, as
// that of an operation must.
func bulkOf(f store.Filter) (possible []store.Action) {
	for _, act := range bulkActions {
		allowed := change.Allowed(act)
		if len(f.States) > 0 && !slices.ContainsFunc(f.States, func(s holdfast.State) bool { return !slices.Contains(allowed, s) }) {
			possible = append(possible, act)
		}
	}
	return possible
}
