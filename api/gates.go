package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// taggedGate is a closed gate with its entity tag.
type taggedGate struct {
	surface.ListedGate
	ETag string `json:"etag" doc:"The version of the gate. Send it as If-Match."`
}

// gateList is a list of closed gates and of limits. The limits have a list of their own: they have other members, and
// DELETE /gates/{id} removes no limit.
type gateList struct {
	Gates  []taggedGate  `json:"gates"`
	Limits []taggedLimit `json:"limits" doc:"All limits, oldest first."`
}

func (a *API) listGates(ctx context.Context, _ *struct{}) (gateList, error) {
	found, err := surface.ListGates(ctx, a.b)
	if err != nil {
		return gateList{}, err
	}
	limits, err := a.b.Store.Limits(ctx)
	return gateList{
		surface.Each(found, func(g surface.ListedGate) taggedGate { return taggedGate{g, gateTag(g.Gate)} }),
		surface.Each(limits, func(l store.LimitUse) taggedLimit { return taggedLimit{l, limitTag(l.Limit)} }),
	}, err
}

// gateTag returns the entity tag of a pause or a breaker. Each change by a person changes the tag. A breaker keeps its
// tag until a person resets it, so that a probe does not make the request of a person fail.
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

// unchangedGate returns a problem if If-Match does not name the entity tag of the gate. g is nil if there is no such
// gate.
func unchangedGate(ifMatch string, g *store.Gate) error {
	if g == nil {
		return unchanged(ifMatch, "", "there is no such pause")
	}
	return unchanged(ifMatch, gateTag(*g), "gate %s has changed: it now has", g.ID)
}

func (a *API) getGate(ctx context.Context, in *IDPath) (*tagged[surface.ListedGate], error) {
	found, err := surface.ListGates(ctx, a.b)
	i := slices.IndexFunc(found, func(g surface.ListedGate) bool { return g.ID == store.ID(in.ID) })
	if i < 0 {
		return nil, cmp.Or(err, fmt.Errorf("%w: gate %d is not closed", holdfast.ErrNotFound, in.ID))
	}
	return withTag(gateTag(found[i].Gate), found[i], err)
}

func (a *API) closeGate(ctx context.Context, in *replacement, r surface.NewGate) (*tagged[surface.Paused], error) {
	paused, err := surface.CloseGate(ctx, a.b, actor(ctx, ""), r, func(before *store.Gate) error { return unchangedGate(in.IfMatch, before) })
	return withTag(gateTag(paused.Gate), paused, err)
}

func (a *API) openGate(ctx context.Context, in *idAction) (store.Gate, error) {
	return a.b.Store.ResumeGate(ctx, actor(ctx, in.Reason), store.ID(in.ID), func(g store.Gate) error { return unchangedGate(in.IfMatch, &g) })
}
