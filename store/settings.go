package store

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
)

// Settings keeps the task settings that people change while processes run. A store does not interpret keys and values:
// the caller validates them before a change, and ignores those that it does not know.
type Settings interface {
	// StoredSettings returns all stored settings with their version. If known is the current version, the result has no
	// values, and the call reads a single row. So every process can call it each second.
	StoredSettings(ctx context.Context, known int64) (StoredSettings, error)
	// ChangeSettings makes the changes in one transaction, adds an audit entry for each, and returns the new version. A
	// change to the present value is not recorded. Without any difference, the version does not change. seen is the
	// version against which the caller has validated the changes. If it is not the current one, ChangeSettings returns
	// ErrConflict and changes nothing. It returns ErrInvalid if a key or a value is too long or a key appears twice.
	ChangeSettings(ctx context.Context, by Actor, seen int64, changes []SettingChange) (version int64, err error)
	// Secret returns the secret with the name, which all processes share. If there is none, it stores the result of
	// create. Of several processes that do so at the same time, one stores its result, and all get that one. A secret is
	// not a setting: no other method returns it, and it is never changed or recorded. create may be called although its
	// result is not used.
	Secret(ctx context.Context, name string, create func() string) (string, error)
	// Incarnation returns the id that the first migration creates. It is part of the name of the marker exchange in the
	// broker. If that exchange is missing, the broker has lost its data.
	Incarnation(ctx context.Context) (string, error)
}

// StoredSettings are the settings in a store.
type StoredSettings struct {
	// Version changes with each change, and is 0 before the first one. Compare versions only for equality. A store that
	// has lost commits may return an earlier version, but never uses a version again for other values.
	Version int64
	Values  map[string]string // by key, such as types.http.retry.base; nil if the caller knows the version
}

// SettingChange is a change of one setting.
type SettingChange struct {
	Action Action // ActionSet, ActionUnset or ActionUndo
	Key    string
	Value  *string // nil removes the setting
}

// Limits of a setting, in bytes.
const (
	maxSettingKey   = 300
	maxSettingValue = 10_000
)

// ValidateSettingChanges returns the ErrInvalid that ChangeSettings would return, or nil.
func ValidateSettingChanges(changes []SettingChange) error {
	seen := make(map[string]bool, len(changes))
	for _, c := range changes {
		switch {
		case c.Key == "" || len(c.Key) > maxSettingKey:
			return fmt.Errorf("%w: the key of a setting must have 1 to %d bytes", holdfast.ErrInvalid, maxSettingKey)
		case c.Value != nil && len(*c.Value) > maxSettingValue:
			return fmt.Errorf("%w: the value of %s has %d bytes; at most %d are allowed", holdfast.ErrInvalid, c.Key, len(*c.Value), maxSettingValue)
		case seen[c.Key]:
			return fmt.Errorf("%w: %s is changed twice", holdfast.ErrInvalid, c.Key)
		}
		seen[c.Key] = true
	}
	return nil
}

// SettingSubject returns the subject of the audit entries about a setting.
func SettingSubject(key string) string { return "setting " + key }

// SettingValue is the form of a setting in an audit entry.
type SettingValue struct {
	Value string `json:"value"`
}
