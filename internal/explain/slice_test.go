package explain_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// An explanation names the slice and the source of a task, and claims nothing about a key that only looks like one.
func TestSliceOfATask(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2030, 1, 30, 2, minute, 0, 0, time.UTC) }
	shop := plan.Source{Type: "pull", Every: new(plan.Duration(time.Minute))}.Plan("shop", plan.Source{}, now)
	var err error
	if shop.Progress, err = json.Marshal(plan.SourceProgress{Next: at(9), DoneThrough: at(3), Open: 2, Dead: 1}); err != nil {
		t.Fatal(err)
	}
	newer := shop
	newer.Spec = []byte(`{"weekday": 1}`)
	entry := func(action store.Action) *store.AuditEntry {
		return &store.AuditEntry{At: now.Add(-2 * time.Hour), Actor: store.Actor{Name: "anna"}, Action: action, Subject: "source shop"}
	}
	payload := func(from, to time.Time) json.RawMessage {
		text, err := json.Marshal(plan.Slice{Source: "shop", From: from, To: to})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	key := "slice/shop/" + plan.SliceName(at(4))
	const made, through = "pulls the slice of the source shop from 2030-01-30T02:04:00Z to 2030-01-30T02:05:00Z", "; the source is done through 2030-01-30T02:03:00Z, with 2 open and 1 dead slices"
	for name, c := range map[string]struct {
		source  source
		payload json.RawMessage
		want    string // "" if the explanation has no slice
		state   store.PlanState
	}{
		"no key":          {source{}, nil, "", ""},
		"a similar key":   {source{unique: "slice/shop/soon", plan: &shop}, nil, "", ""},
		"a source":        {source{unique: key, plan: &shop}, payload(at(4), at(5)), made + through, store.PlanRunning},
		"with an overlap": {source{unique: key, plan: &shop}, payload(at(4).Add(-5*time.Second), at(5)), made + ", and the 5s before it" + through, store.PlanRunning},
		"another payload": {source{unique: key, plan: &shop}, json.RawMessage(`[]`), "pulls the slice of the source shop from 2030-01-30T02:04:00Z" + through, store.PlanRunning},
		"a newer version": {source{unique: key, plan: &newer}, payload(at(4), at(5)), made + "; a newer version has stored the source", store.PlanRunning},
		"deleted":         {source{unique: key, last: entry(store.ActionDelete)}, payload(at(4), at(5)), made + "; anna deleted the source 2h0m0s ago", store.PlanDeleted},
		"ended":           {source{unique: key, last: entry(store.ActionCreate)}, payload(at(4), at(5)), made + "; the source has ended", store.PlanDone},
		"no source":       {source{unique: key}, nil, "its unique key names the source shop, which does not exist, or does not exist any more", ""},
	} {
		c.source.payload = c.payload
		e, err := explain.Read(t.Context(), &c.source, 7, holdfast.Settings{}, store.PruneAges{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e.Slice == nil {
			e.Slice = &explain.SliceOrigin{}
		}
		if s := e.Slice; s.Text != c.want || s.State != c.state || c.want != "" && (s.Source != "shop" || !s.From.Equal(at(4))) || e.Schedule != nil {
			t.Errorf("%s: %+v, want %q, %q", name, s, c.want, c.state)
		}
	}
}
