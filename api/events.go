package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/eventstream"
	"github.com/holdfastq/holdfast/surface"
)

const (
	maxStreams  = 100
	streamEvery = time.Second // minimum time between two pages
	// streamPause is the pause before a page, as a multiple of the time that the previous page took.
	streamPause = 5
	heartbeat   = 15 * time.Second
)

// TaskChanges is an event with the changes of a page since the previous event.
type TaskChanges struct {
	Tasks   []surface.ListedTask `json:"tasks" doc:"The tasks that are new in the page or have changed."`
	Removed []holdfast.TaskID    `json:"removed" doc:"The tasks that are no longer in the page."`
	Next    *holdfast.TaskID     `json:"next"`
}

// eventsRoute registers the route that watches a list of tasks.
func (a *API) eventsRoute(described huma.API, op huma.Operation) {
	schemas := described.OpenAPI().Components.Schemas
	schemas.Schema(typeOf[surface.TaskPage](), true, "TaskPage")
	schemas.Schema(typeOf[TaskChanges](), true, "TaskChanges")
	op.Description += " Server-sent events: snapshot has a TaskPage, and change has TaskChanges."
	op.Responses["200"] = response("Events.", "text/event-stream", &huma.Schema{Type: huma.TypeString})
	huma.Register(described, op, func(ctx context.Context, in *query) (*huma.StreamResponse, error) {
		page, took, err := a.pageOf(ctx, in)
		if err != nil {
			return nil, a.failed(ctx, op, err)
		}
		select {
		case a.streams <- struct{}{}:
		default:
			p := newProblem(http.StatusServiceUnavailable, overloaded, "this process serves %d streams, which is the limit", maxStreams)
			p.retryAfter = heartbeat
			return nil, p
		}
		return &huma.StreamResponse{Body: func(c huma.Context) {
			defer func() { <-a.streams }()
			r, w := humago.Unwrap(c)
			a.stream(w, r, in, page, pauseAfter(took))
		}}, nil
	})
}

// pageOf acquires a slot and reads the page of a stream. It also returns how long the store took.
func (a *API) pageOf(ctx context.Context, in *query) (page surface.TaskPage, took time.Duration, err error) {
	release, err := a.LiveSlot(ctx)
	if err != nil {
		return page, 0, err
	}
	defer release()
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	began := time.Now()
	page, err = a.listTasks(limited, in)
	return page, time.Since(began), err
}

// pauseAfter returns how long a stream waits after a page, given how long the store took for it.
func pauseAfter(took time.Duration) time.Duration { return max(streamEvery, streamPause*took) }

// stream sends page. After each pause it reads the page again and sends the changes, until the client has gone, the API
// stops, or the caller may no longer read.
func (a *API) stream(w http.ResponseWriter, r *http.Request, in *query, page surface.TaskPage, pause time.Duration) {
	ctx := r.Context()
	to, err := eventstream.Begin(w)
	if err != nil || sendJSON(to, "snapshot", page) != nil {
		return
	}
	next := time.NewTimer(pause)
	defer next.Stop()
	sent := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.stopping:
			return
		case <-next.C:
		}
		if !a.access.MayStay(ctx, callerOf(ctx)) {
			return
		}
		newest, took, err := a.pageOf(ctx, in)
		if p, ok := errors.AsType[*Problem](err); ok && p.Code == overloaded {
			newest = page // try again after the next pause
		} else if err != nil {
			return // the client connects again; if the error persists, it gets an error response
		} else {
			newest = withUnseen(newest, page, in.Limit)
		}
		next.Reset(pauseAfter(took))
		changes, changed := difference(page, newest)
		switch {
		case changed:
			err = sendJSON(to, "change", changes)
		case time.Since(sent) >= heartbeat:
			err = to.Beat()
		default:
			continue
		}
		if err != nil {
			return
		}
		page, sent = newest, time.Now()
	}
}

// withUnseen returns the newest page with some tasks of the previous page: those that the search did not reach this
// time, because it stopped earlier. They may still match.
func withUnseen(newest, before surface.TaskPage, limit int) surface.TaskPage {
	for _, task := range before.Tasks {
		if newest.Next != nil && task.ID < *newest.Next && len(newest.Tasks) < limit {
			newest.Tasks = append(newest.Tasks, task)
		}
	}
	return newest
}

// difference returns the changes between two pages.
func difference(before, now surface.TaskPage) (changes TaskChanges, changed bool) {
	changes = TaskChanges{Tasks: []surface.ListedTask{}, Removed: []holdfast.TaskID{}, Next: now.Next}
	text := func(task surface.ListedTask) string { return fmt.Sprintf("%+v %v", task.Task, task.Gate) }
	for _, task := range now.Tasks {
		i := slices.IndexFunc(before.Tasks, func(other surface.ListedTask) bool { return other.ID == task.ID })
		if i < 0 || text(before.Tasks[i]) != text(task) {
			changes.Tasks = append(changes.Tasks, task)
		}
	}
	for _, task := range before.Tasks {
		if !slices.ContainsFunc(now.Tasks, func(other surface.ListedTask) bool { return other.ID == task.ID }) {
			changes.Removed = append(changes.Removed, task.ID)
		}
	}
	return changes, len(changes.Tasks)+len(changes.Removed) > 0
}

// sendJSON sends an event whose data is JSON.
func sendJSON(to *eventstream.Writer, name string, value any) error {
	var text strings.Builder
	if err := surface.WriteJSON(&text, value); err != nil {
		return err
	}
	return to.Send(name, strings.TrimSuffix(text.String(), "\n"))
}
