package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// taggedGate is a closed gate with its entity tag.
type taggedGate struct {
	surface.ListedGate
	ETag string `json:"etag" doc:"The version of the gate. Send it as If-Match."`
}

// gateList is a list of closed gates.
type gateList struct {
	Gates []taggedGate `json:"gates"`
}

func (a *API) listGates(ctx context.Context, _ *struct{}) (gateList, error) {
	found, err := surface.ListGates(ctx, a.b)
	list := gateList{make([]taggedGate, len(found))}
	for i, gate := range found {
		list.Gates[i] = taggedGate{gate, gateTag(gate.Gate)}
	}
	return list, err
}

// gateTag returns the entity tag of a pause or a breaker. Each change by a person changes it. A breaker has the same tag
// until it is reset, so that the probes of its target do not get in the way of a person.
func gateTag(g store.Gate) string {
	if g.Kind == store.GateBreaker {
		return fmt.Sprintf(`"%s"`, g.ID)
	}
	return contentTag(g.ID, g.Name, g.Surface, g.Reason, g.ClosedAt.UnixMicro(), g.Until.UnixMicro())
}

// contentTag returns the entity tag of a record with an id and the given content.
func contentTag(id store.ID, content ...any) string {
	text, err := json.Marshal(content)
	if err != nil { // impossible: texts and numbers always encode
		panic(err)
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf(`"%s-%s"`, id, hex.EncodeToString(sum[:8]))
}

// matchesGate returns a problem if If-Match does not name the entity tag of the gate. gate is nil if there is none.
func matchesGate(ifMatch string, gate *store.Gate) error {
	switch {
	case ifMatch == "":
		return nil
	case gate == nil:
		return changed("there is no such pause")
	case !matches(ifMatch, gateTag(*gate)):
		return changed("gate %s has changed: it now has the entity tag %s", gate.ID, gateTag(*gate))
	}
	return nil
}

func (a *API) getGate(ctx context.Context, in *GatePath) (*tagged[surface.ListedGate], error) {
	found, err := surface.ListGates(ctx, a.b)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(found, func(g surface.ListedGate) bool { return g.ID == store.ID(in.ID) })
	if i < 0 {
		return nil, fmt.Errorf("%w: gate %d is not closed", holdfast.ErrNotFound, in.ID)
	}
	return &tagged[surface.ListedGate]{gateTag(found[i].Gate), found[i]}, nil
}

// newGate is a request to close a gate, or to change it.
type newGate struct {
	Kind   string           `json:"kind" enum:"pause"`
	Queue  string           `json:"queue,omitempty" doc:"Pause this queue."`
	Type   string           `json:"type,omitempty" doc:"Pause the tasks of this type."`
	Key    string           `json:"key,omitempty" doc:"Pause the tasks of this key."`
	Target string           `json:"target,omitempty" doc:"Pause the tasks of type http that call this target: a URL, of which the scheme, the host and the port count."`
	For    optional[string] `json:"for,omitzero" doc:"End the pause after this duration, such as 1h; null removes the end; if it is missing, the end of a pause stays, and a new pause has no end."`
	Reason optional[string] `json:"reason,omitzero" doc:"Why; null removes the reason; if it is missing, the reason of a pause stays."`
}

// change returns the change that the request describes.
func (g *newGate) change() (store.PauseChange, error) {
	target, err := targetOf(g.Target)
	c := store.PauseChange{
		Subject:  store.Subject{Queue: g.Queue, Type: g.Type, Key: g.Key, Target: target},
		NoReason: g.Reason.removes(""),
	}
	if err != nil {
		return c, err
	}
	if g.Kind != string(store.GatePause) {
		return c, newProblem(http.StatusUnprocessableEntity, "invalid", "kind %q is not pause", g.Kind)
	}
	if g.For.given {
		var d time.Duration
		if text := g.For.value; text != nil {
			var err error
			if d, err = time.ParseDuration(*text); err != nil || d <= 0 {
				return c, newProblem(http.StatusUnprocessableEntity, "invalid", "for %q is not a duration like 1h", *text)
			}
		}
		c.For = &d
	}
	return c, nil
}

// changeGate has the parameters of the route that pauses.
type changeGate struct {
	IfMatch string `header:"If-Match" doc:"Change the pause only if it still has this entity tag."`
	RawBody []byte `contentType:"application/json"`
}

func (a *API) closeGate(ctx context.Context, in *changeGate) (*tagged[surface.Paused], error) {
	var request newGate
	if err := decode(in.RawBody, &request); err != nil {
		return nil, err
	}
	change, err := request.change()
	if err != nil {
		return nil, err
	}
	change.Check = func(before *store.Gate) error { return matchesGate(in.IfMatch, before) }
	paused, err := a.b.Pause(ctx, actor(ctx, request.Reason.or("")), change)
	if err != nil {
		return nil, err
	}
	return &tagged[surface.Paused]{gateTag(paused.After), surface.PausedOf(paused)}, nil
}

// GatePath has the parameter of routes about one gate; see TaskPath.
type GatePath struct {
	ID int64 `path:"id" minimum:"1" doc:"The id of the gate."`
}

// gateAction has the parameters of the route that opens a gate.
type gateAction struct {
	GatePath
	IfMatch string `header:"If-Match" doc:"Open the gate only if it still has this entity tag."`
	Reason  string `query:"reason" doc:"Why, for the audit log."`
}

// targetOf returns the target of a URL, and "" for "".
func targetOf(url string) (string, error) {
	target, ok := holdfast.ParseTarget(url)
	if !ok && url != "" {
		return "", fmt.Errorf("%w: %.120q is not a target; a target is a URL like https://example.com:443, whose host has at most %d bytes, "+
			"and only ASCII characters: write bücher.example as xn--bcher-kva.example", holdfast.ErrInvalid, url, holdfast.MaxHostLength)
	}
	return target, nil
}

func (a *API) openGate(ctx context.Context, in *gateAction) (store.Gate, error) {
	return a.b.Store.ResumeGate(ctx, actor(ctx, in.Reason), store.ID(in.ID), func(g store.Gate) error { return matchesGate(in.IfMatch, &g) })
}
