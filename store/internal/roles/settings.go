package roles

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// settings implements store.Settings.
type settings struct{ transactions transact.Transactions }

// settingsVersion is the key of the version.
const settingsVersion = "settings_version"

// Incarnation implements store.Migrations.
func (s *settings) Incarnation(ctx context.Context) (string, error) {
	const operation = "read the incarnation"
	missing := fmt.Errorf("%s: %w", operation, schema.Outdated("the incarnation is missing"))
	row, err := transact.FirstOf[struct{ Value string }](ctx, transact.Alone(s.transactions, operation), missing, "incarnation")
	return row.Value, err
}

// settingRow is a row of the statement stored_settings.
type settingRow struct {
	Version    int64
	Key, Value string // "" if the row has only the version
}

// StoredSettings implements store.Settings.
func (s *settings) StoredSettings(ctx context.Context, known int64) (store.StoredSettings, error) {
	var rows []settingRow
	if err := s.transactions.Read(ctx, "read settings", "stored_settings", &rows, settingsVersion, known); err != nil {
		return store.StoredSettings{}, err
	}
	if len(rows) == 0 {
		return store.StoredSettings{}, fmt.Errorf("read settings: %w: the store has no version of its settings", holdfast.ErrNotFound)
	}
	stored := store.StoredSettings{Version: rows[0].Version}
	if stored.Version != known {
		stored.Values = settingsOf(rows)
	}
	return stored, nil
}

func settingsOf(rows []settingRow) map[string]string {
	values := make(map[string]string, len(rows))
	for _, row := range rows {
		if row.Key != "" {
			values[row.Key] = row.Value
		}
	}
	return values
}

// ChangeSettings implements store.Settings.
func (s *settings) ChangeSettings(ctx context.Context, by store.Actor, seen int64, changes []store.SettingChange) (version int64, err error) {
	const operation = "change settings"
	if err := store.ValidateSettingChanges(changes); err != nil {
		return 0, fmt.Errorf("%s: %w", operation, err)
	}
	err = s.transactions.Transact(ctx, operation, func(ctx context.Context, tx transact.Transaction) error {
		version = seen
		var rows []settingRow
		if err := tx.Read(ctx, "stored_settings", &rows, settingsVersion, int64(-1)); err != nil {
			return err
		}
		if len(rows) == 0 || rows[0].Version != seen {
			return errSettingsChanged
		}
		entries, changes := settingEntries(by, settingsOf(rows), changes)
		if len(changes) == 0 {
			return by.Validate()
		}
		// There is no next version if another change has committed since the read.
		type next struct{ Version int64 }
		row, err := transact.FirstOf[next](ctx, tx, errSettingsChanged, "settings_next_version", settingsVersion, seen)
		if err != nil {
			return err
		}
		version = row.Version
		for _, c := range changes {
			statement, args := "setting_unset", []any{c.Key}
			if c.Value != nil {
				statement, args = "setting_set", []any{c.Key, *c.Value}
			}
			if _, err := tx.Change(ctx, statement, args...); err != nil {
				return err
			}
		}
		return transact.Record(ctx, tx, entries)
	})
	return version, err
}

var errSettingsChanged = fmt.Errorf("%w: the settings have changed meanwhile", holdfast.ErrConflict)

// secretRow is a row of the statement secret.
type secretRow struct{ Value string }

// Secret implements store.Settings. It reads first, because the secret nearly always exists.
func (s *settings) Secret(ctx context.Context, name string, create func() string) (string, error) {
	const operation = "read a secret"
	var rows []secretRow
	if err := s.transactions.Read(ctx, operation, "secret", &rows, name); err != nil {
		return "", err
	}
	if len(rows) > 0 {
		return rows[0].Value, nil
	}
	if err := s.transactions.Change(ctx, "create a secret", "secret_create", name, create()); err != nil {
		return "", err
	}
	// Another process may have stored its secret before.
	missing := fmt.Errorf("%s: %w: the store has lost it", operation, holdfast.ErrUnavailable)
	row, err := transact.FirstOf[secretRow](ctx, transact.Alone(s.transactions, operation), missing, "secret", name)
	return row.Value, err
}

// settingEntries returns the changes that make a difference, with texts that a column can store, and their audit
// entries.
func settingEntries(by store.Actor, present map[string]string, changes []store.SettingChange) (entries []transact.AuditRow, different []store.SettingChange) {
	for _, c := range slices.Clone(changes) {
		c.Key = column.Text(c.Key)
		was, had := present[c.Key]
		if c.Value != nil {
			is := column.Text(*c.Value)
			c.Value = &is
		}
		if had == (c.Value != nil) && (!had || was == *c.Value) {
			continue
		}
		entry := transact.EntryOf(by, c.Action, store.SettingSubject(c.Key))
		if had {
			entry.Before = transact.TextOf([]byte(transact.Encode(store.SettingValue{Value: was})))
		}
		if c.Value != nil {
			entry.After = transact.TextOf([]byte(transact.Encode(store.SettingValue{Value: *c.Value})))
		}
		entries, different = append(entries, entry), append(different, c)
	}
	return entries, different
}
