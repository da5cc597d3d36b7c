package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	live "github.com/holdfastq/holdfast/internal/settings"
	"github.com/holdfastq/holdfast/store"
)

// SettingPlan is one change of the delay after a failure, which a person makes in the store.
type SettingPlan struct {
	Name string
	At   time.Duration
	Base time.Duration // 0 removes the setting
}

// baseKey is the setting that the person changes.
const baseKey = "defaults.retry.base"

// seenWithin is the time within which every process uses a change.
const seenWithin = 2 * time.Second

// bases are the delays that the person sets.
var bases = []time.Duration{0, 100 * time.Millisecond, 900 * time.Millisecond, 2 * time.Second}

// changeSettings adds one to four changes of the delay after a failure.
func (p *Plan) changeSettings(r *rand.Rand) {
	for i := range 1 + r.IntN(4) {
		p.Settings = append(p.Settings, SettingPlan{fmt.Sprint("b", i), between(r, 0, faultTime/2), bases[r.IntN(len(bases))]})
	}
}

// withStored returns the settings of the processes joined with stored ones.
func (p *Plan) withStored(values map[string]string) holdfast.Settings {
	own := p.settings()
	merged, _ := configs.Config{Defaults: own.Defaults, Types: own.Types}.WithStored(values)
	return merged.Settings()
}

// withBase returns the settings after the person has set a delay.
func (p *Plan) withBase(base time.Duration) holdfast.Settings {
	values := make(map[string]string)
	if base > 0 {
		values[baseKey] = base.String()
	}
	return p.withStored(values)
}

// watchSettings starts to read the stored settings, if the plan changes any. stop returns when no goroutine reads them.
func (p *process) watchSettings(log logrus.FieldLogger) (source holdfast.SettingsSource, stop func()) {
	if len(p.world.plan.Settings) == 0 {
		return p.world.plan.settings(), func() {}
	}
	own := p.world.plan.settings()
	s := live.New(p.store, log)
	ctx, cancel := context.WithCancel(p.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Refresh(ctx) // Run tries again
		_ = s.Run(ctx)
	}()
	return s.Over(configs.Config{Defaults: own.Defaults, Types: own.Types}), func() {
		cancel()
		<-ended
	}
}

// set makes a change of the plan. The store is up or not: the person tries until the change is made. The caller holds
// w.mu.
func (w *world) set(s SettingPlan) {
	client := w.store.Client(nil)
	now, err := client.StoredSettings(context.Background(), -1)
	change := store.SettingChange{Action: store.ActionUnset, Key: baseKey}
	if s.Base > 0 {
		change.Action, change.Value = store.ActionSet, new(s.Base.String())
	}
	if err == nil {
		_, err = client.ChangeSettings(context.Background(), person, now.Version, []store.SettingChange{change})
	}
	if err != nil {
		w.check.fail("setting %s cannot be changed: %v", s.Name, err)
	}
	w.base, w.settingsChanged = s.Base, time.Now()
}

// nextWith returns what an explanation of a task says about its next results, by the delay in the store.
func (e *explanations) nextWith(id holdfast.TaskID) map[time.Duration][]string {
	if len(e.check.world.plan.Settings) == 0 {
		return nil
	}
	next := make(map[time.Duration][]string)
	for _, base := range bases {
		if found, ok := e.read(id, e.check.world.plan.withBase(base)); ok {
			next[base] = found.Next
		}
	}
	return next
}

// possible returns what may follow a result: what the explanation has said with the settings of its time, or, if the
// settings have changed, what it would have said with others. After seenWithin without trouble, every process uses the
// present settings.
func (e *explanations) possible(p *prediction) []string {
	if p.nextWith == nil {
		return p.Next
	}
	if w := e.check.world; e.steady() && time.Since(w.settingsChanged) > seenWithin { // without faults, the store loses no change
		return p.nextWith[w.base]
	}
	return slices.Concat(slices.Collect(maps.Values(p.nextWith))...)
}

// settings returns the settings of the processes joined with those in the store.
func (e *explanations) settings() holdfast.Settings {
	if len(e.check.world.plan.Settings) == 0 {
		return e.check.world.plan.settings()
	}
	stored, err := e.source.StoredSettings(context.Background(), -1)
	if err != nil {
		e.check.fail("settings cannot be read: %v", err)
	}
	return e.check.world.plan.withStored(stored.Values)
}
