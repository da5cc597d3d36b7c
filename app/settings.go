package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/settings"
	"github.com/holdfastq/holdfast/store"
)

// liveSettings reads the changes of the stored settings in a goroutine.
type liveSettings struct {
	source *settings.Source
	stop   context.CancelFunc
	ended  chan struct{}
}

// watchSettings reads the stored settings, and starts a goroutine that reads their changes until Close.
func (b *Backend) watchSettings(ctx context.Context) error {
	source := settings.New(b.Store, b.Log)
	if err := source.Refresh(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.live = &liveSettings{source, stop, make(chan struct{})}
	go func() {
		defer close(b.live.ended)
		_ = source.Run(ctx) // always nil
	}()
	return nil
}

// close stops the goroutine and waits until it has ended.
func (l *liveSettings) close() {
	l.stop()
	<-l.ended
}

// Settings returns the task settings of this process: its configuration joined with the stored settings, which change
// while the process runs. A backend from OpenStore uses only its configuration.
func (b *Backend) Settings() holdfast.SettingsSource {
	if b.live == nil {
		return b.Config.Settings()
	}
	return b.live.source.Over(b.Config)
}

// EffectiveSettings are the stored settings at one time, and their effect in this process.
type EffectiveSettings struct {
	store.StoredSettings
	Config  configs.Config   // the configuration joined with the stored settings
	Ignored []*configs.Error // stored settings without effect in this process
}

// ReadSettings reads the stored settings and joins them with the configuration.
func (b *Backend) ReadSettings(ctx context.Context) (EffectiveSettings, error) {
	stored, err := b.Store.StoredSettings(ctx, -1)
	return b.effective(stored), err
}

func (b *Backend) effective(stored store.StoredSettings) EffectiveSettings {
	merged, ignored := b.Config.WithStored(stored.Values)
	return EffectiveSettings{stored, merged, ignored}
}

// SettingsRequest is a change of stored settings that a person requests.
type SettingsRequest struct {
	Set   map[string]string // values by key
	Unset []string
	// Check, if not nil, gets the version that the request would change. If Check returns an error, nothing changes,
	// and the caller gets that error.
	Check func(version int64) error
}

// ChangeSettings makes either all changes or none, and returns the settings after them. It returns an ErrInvalid if a
// key is not that of a task setting, if a value is out of range, or if the values together are not a valid policy. It
// returns an ErrNotFound if the request removes a setting that is not stored.
func (b *Backend) ChangeSettings(ctx context.Context, by store.Actor, r SettingsRequest) (EffectiveSettings, error) {
	return b.changeSettings(ctx, by, r.Check, func(now EffectiveSettings) ([]store.SettingChange, error) {
		var changes []store.SettingChange
		var problems []error
		for _, key := range slices.Sorted(maps.Keys(r.Set)) {
			value, err := configs.StoredValue(key, r.Set[key])
			if err != nil {
				problems = append(problems, err)
				continue
			}
			changes = append(changes, store.SettingChange{Action: store.ActionSet, Key: key, Value: &value})
		}
		for _, key := range r.Unset {
			if _, stored := now.Values[key]; !stored { // a stored key may be unknown to this build
				_, err := now.Config.TaskEntry(key)
				problems = append(problems, cmp.Or(err, fmt.Errorf("%w: %s is not set in the store", holdfast.ErrNotFound, key)))
				continue
			}
			changes = append(changes, store.SettingChange{Action: store.ActionUnset, Key: key})
		}
		return changes, errors.Join(problems...)
	})
}

// UndoSetting takes back the last change of a stored setting, and returns the settings after the undo. It returns an
// ErrConflict if no person has changed the setting, if the last change was an undo, or if the value has changed since.
func (b *Backend) UndoSetting(ctx context.Context, by store.Actor, key string, check func(version int64) error) (EffectiveSettings, error) {
	return b.changeSettings(ctx, by, check, func(now EffectiveSettings) ([]store.SettingChange, error) {
		entries, err := b.Store.AuditLog(ctx, store.AuditFilter{Subject: store.SettingSubject(key), Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			if _, err := now.Config.TaskEntry(key); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("%w: nothing to undo: no person has changed %s", holdfast.ErrConflict, key)
		}
		last := entries[0]
		if last.Action != store.ActionSet && last.Action != store.ActionUnset {
			return nil, fmt.Errorf("%w: the last change of %s was %q, which cannot be undone; only set and unset can", holdfast.ErrConflict, key, last.Action)
		}
		was, err := settingValue(last.Before)
		if err != nil {
			return nil, err
		}
		is, err := settingValue(last.After)
		if err != nil {
			return nil, err
		}
		present, stored := now.Values[key]
		if stored != (is != nil) || stored && present != *is {
			return nil, fmt.Errorf("%w: cannot undo the %s of %s: the setting has changed since", holdfast.ErrConflict, last.Action, key)
		}
		return []store.SettingChange{{Action: store.ActionUndo, Key: key, Value: was}}, nil
	})
}

// settingValue returns the value in an audit entry, or nil if it has none.
func settingValue(document json.RawMessage) (*string, error) {
	var v *store.SettingValue
	if len(document) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(document, &v); err != nil || v == nil {
		return nil, err
	}
	return &v.Value, nil
}

// changeSettings reads the stored settings, computes changes, validates the result and stores the changes. If the
// settings have changed meanwhile, it begins again.
func (b *Backend) changeSettings(
	ctx context.Context, by store.Actor, check func(version int64) error, compute func(EffectiveSettings) ([]store.SettingChange, error),
) (EffectiveSettings, error) {
	for range tries {
		now, err := b.ReadSettings(ctx)
		if err != nil {
			return now, err
		}
		if check != nil {
			if err := check(now.Version); err != nil {
				return now, err
			}
		}
		changes, err := compute(now)
		if err != nil {
			return now, err
		}
		next, err := b.after(now, changes)
		if err != nil {
			return now, err
		}
		next.Version, err = b.Store.ChangeSettings(ctx, by, now.Version, changes)
		if !errors.Is(err, holdfast.ErrConflict) {
			return next, err
		}
	}
	return EffectiveSettings{}, fmt.Errorf("%w: the settings keep changing; try again", holdfast.ErrConflict)
}

// after returns the settings after changes. It returns an ErrInvalid if a stored setting would lose its effect, if a
// new setting would have no effect, or if the settings would conflict with other settings of this process.
func (b *Backend) after(now EffectiveSettings, changes []store.SettingChange) (EffectiveSettings, error) {
	values := maps.Clone(now.Values)
	for _, c := range changes {
		if delete(values, c.Key); c.Value != nil {
			values[c.Key] = *c.Value
		}
	}
	next := b.effective(store.StoredSettings{Values: values})
	known := make(map[string]bool)
	for _, problem := range now.Ignored {
		known[problem.Error()] = true
	}
	var problems []error
	for _, problem := range next.Ignored {
		if !known[problem.Error()] {
			problems = append(problems, problem)
		}
	}
	if len(problems) == 0 && b.Config.Validate() == nil {
		problems = append(problems, next.Config.Validate())
	}
	return next, errors.Join(problems...)
}
