package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

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

// changeGate has the parameters of the route that pauses.
type changeGate struct {
	IfMatch string `header:"If-Match" doc:"Change the pause only if it still has this entity tag."`
	RawBody []byte `contentType:"application/json"`
}

func (a *API) closeGate(ctx context.Context, in *changeGate) (*tagged[surface.Paused], error) {
	var request surface.NewGate
	if err := decode(in.RawBody, &request); err != nil {
		return nil, err
	}
	paused, err := surface.CloseGate(ctx, a.b, actor(ctx, ""), request, func(before *store.Gate) error { return matchesGate(in.IfMatch, before) })
	if err != nil {
		return nil, err
	}
	return &tagged[surface.Paused]{gateTag(paused.Gate), paused}, nil
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

func (a *API) openGate(ctx context.Context, in *gateAction) (store.Gate, error) {
	return a.b.Store.ResumeGate(ctx, actor(ctx, in.Reason), store.ID(in.ID), func(g store.Gate) error { return matchesGate(in.IfMatch, &g) })
}
