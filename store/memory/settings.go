package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// StoredSettings implements store.Settings.
func (c *Client) StoredSettings(ctx context.Context, known int64) (store.StoredSettings, error) {
	var stored store.StoredSettings
	err := c.do(ctx, Step{Op: "StoredSettings"}, func(time.Time) error {
		db := &c.store.db
		stored = store.StoredSettings{Version: db.settingsVersion}
		if known != stored.Version {
			stored.Values = make(map[string]string, len(db.settings))
			maps.Copy(stored.Values, db.settings)
		}
		return nil
	})
	if err != nil {
		return store.StoredSettings{}, err // the effect may still happen and write stored
	}
	return stored, nil
}

// ChangeSettings implements store.Settings.
func (c *Client) ChangeSettings(ctx context.Context, by store.Actor, seen int64, changes []store.SettingChange) (int64, error) {
	var version int64
	err := c.do(ctx, Step{Op: "ChangeSettings"}, func(now time.Time) error {
		db := &c.store.db
		if err := store.ValidateSettingChanges(changes); err != nil {
			return fmt.Errorf("change settings: %w", err)
		}
		if err := by.Validate(); err != nil {
			return err
		}
		if version = seen; db.settingsVersion != seen {
			return fmt.Errorf("change settings: %w: the settings have changed meanwhile", holdfast.ErrConflict)
		}
		settings, different := make(map[string]string), false
		maps.Copy(settings, db.settings)
		for _, change := range changes {
			key, entry := clean(change.Key), store.AuditEntry{At: now, Actor: by, Action: change.Action}
			was, had := settings[key]
			if had {
				entry.Before = settingDocument(was)
			}
			switch {
			case change.Value == nil && !had, change.Value != nil && had && was == clean(*change.Value):
				continue
			case change.Value == nil:
				delete(settings, key)
			default:
				settings[key] = clean(*change.Value)
				entry.After = settingDocument(settings[key])
			}
			entry.Subject, different = store.SettingSubject(key), true
			c.store.recordAudit(entry)
		}
		if different {
			db.settings, db.settingsVersion = settings, max(db.settingsVersion+1, now.UnixMicro())
			version = db.settingsVersion
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return version, nil
}

// Secret implements store.Settings.
func (c *Client) Secret(ctx context.Context, name string, create func() string) (string, error) {
	secret, stored := "", false
	err := c.do(ctx, Step{Op: "Secret"}, func(time.Time) error {
		secret, stored = c.store.db.secrets[name]
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case stored:
		return secret, nil
	}
	created, secret := create(), ""
	err = c.do(ctx, Step{Op: "Secret create"}, func(time.Time) error {
		db := &c.store.db
		if _, stored := db.secrets[name]; !stored {
			secrets := map[string]string{name: created}
			maps.Copy(secrets, db.secrets)
			db.secrets = secrets
		}
		secret = db.secrets[name]
		return nil
	})
	if err != nil {
		return "", err
	}
	return secret, nil
}

func settingDocument(value string) json.RawMessage {
	document, err := json.Marshal(store.SettingValue{Value: value})
	if err != nil {
		panic(err)
	}
	return document
}

// Incarnation implements store.Settings.
func (c *Client) Incarnation(ctx context.Context) (string, error) {
	if err := c.do(ctx, Step{Op: "Incarnation"}, func(time.Time) error { return nil }); err != nil {
		return "", err
	}
	return "memory-1", nil
}
