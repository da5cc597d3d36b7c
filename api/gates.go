package api

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// gateList is a list of closed gates.
type gateList struct {
	Gates []surface.ListedGate `json:"gates"`
}

func (a *API) listGates(ctx context.Context, _ *struct{}) (gateList, error) {
	found, err := surface.ListGates(ctx, a.b)
	return gateList{found}, err
}

// newGate is a request to close a gate.
type newGate struct {
	Kind   string `json:"kind" enum:"pause"`
	Queue  string `json:"queue,omitempty" doc:"Pause this queue."`
	Type   string `json:"type,omitempty" doc:"Pause the tasks of this type."`
	Key    string `json:"key,omitempty" doc:"Pause the tasks of this key."`
	Target string `json:"target,omitempty" doc:"Pause the tasks of type http that call this target: a URL, of which the scheme, the host and the port count."`
	For    string `json:"for,omitempty" doc:"End the pause after this duration, such as 1h; if it is missing, the pause has no end."`
	Reason string `json:"reason,omitempty" doc:"Why, for the audit log."`
}

func (a *API) closeGate(ctx context.Context, in *rawBody) (surface.Paused, error) {
	var request newGate
	if err := decode(in.RawBody, &request); err != nil {
		return surface.Paused{}, err
	}
	if request.Kind != string(store.GatePause) {
		return surface.Paused{}, newProblem(http.StatusUnprocessableEntity, "invalid", "kind %q is not pause", request.Kind)
	}
	subject := store.Subject{Queue: request.Queue, Type: request.Type, Key: request.Key, Target: targetOf(request.Target)}
	var d time.Duration
	if request.For != "" {
		var err error
		if d, err = time.ParseDuration(request.For); err != nil || d <= 0 {
			return surface.Paused{}, newProblem(http.StatusUnprocessableEntity, "invalid", "for %q is not a duration like 1h", request.For)
		}
	}
	paused, err := a.b.Pause(ctx, actor(ctx, request.Reason), subject, d)
	if err != nil {
		return surface.Paused{}, err
	}
	return surface.PausedOf(paused), nil
}

// gatePath has the parameters of routes about one gate.
type gatePath struct {
	ID     int64  `path:"id" minimum:"1" doc:"The id of the gate."`
	Reason string `query:"reason" doc:"Why, for the audit log."`
}

// targetOf returns the target of a URL. It returns other texts unchanged, for the store to refuse.
func targetOf(url string) string {
	if target, ok := holdfast.ParseTarget(url); ok {
		return target
	}
	return url
}

func (a *API) openGate(ctx context.Context, in *gatePath) (store.Gate, error) {
	return a.b.ResumeGate(ctx, actor(ctx, in.Reason), store.ID(in.ID))
}
