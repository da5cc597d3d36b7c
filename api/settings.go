package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/surface"
)

// config is a list of all settings of this process.
type config struct {
	Settings []configs.Entry `json:"settings"`
}

func (a *API) getConfig(context.Context, *struct{}) (config, error) {
	return config{a.b.Config.Entries()}, nil
}

func (a *API) listSettings(ctx context.Context, in *surface.SettingsQuery) (*tagged[surface.Settings], error) {
	now, err := a.b.ReadSettings(ctx)
	return withTag(versionTag(now.Version), surface.SettingsOf(now, in.All), err)
}

// settingsChange has the parameters of the routes that change stored settings.
type settingsChange struct {
	Conditional
	RawJSON
}

// check returns a problem if If-Match does not name the version.
func (in *settingsChange) check(version int64) error {
	return unchanged(in.IfMatch, versionTag(version), "the settings have changed: they now have")
}

// settingsPatch maps keys to values. A null removes the stored setting.
type settingsPatch map[string]*string

// UnmarshalJSON implements json.Unmarshaler. Its errors name the key.
func (p *settingsPatch) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	*p = make(settingsPatch)
	for _, key := range slices.Sorted(maps.Keys(members)) {
		var value *string
		if err := json.Unmarshal(members[key], &value); err != nil {
			return fmt.Errorf("%s must be a string or null", key)
		}
		(*p)[key] = value
	}
	return nil
}

func (a *API) changeSettings(ctx context.Context, in *settingsChange, patch settingsPatch) (*tagged[surface.Settings], error) {
	if len(patch) == 0 {
		return nil, newProblem(http.StatusUnprocessableEntity, invalidBody, `the body must have settings, such as {"types.http.retry.base": "5s"}`)
	}
	r := app.SettingsRequest{Set: make(map[string]string), Check: in.check}
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		if value := patch[key]; value == nil {
			r.Unset = append(r.Unset, key)
		} else {
			r.Set[key] = *value
		}
	}
	after, err := a.b.ChangeSettings(ctx, actor(ctx, in.Reason), r)
	return withTag(versionTag(after.Version), surface.SettingsOf(after, false), err)
}

// settingKey names a setting.
type settingKey struct {
	Key string `json:"key" doc:"The key of a task setting, such as types.http.retry.base."`
}

func (a *API) undoSetting(ctx context.Context, in *settingsChange, r settingKey) (*tagged[surface.Settings], error) {
	after, err := a.b.UndoSetting(ctx, actor(ctx, in.Reason), r.Key, in.check)
	return withTag(versionTag(after.Version), surface.SettingsOf(after, false), err)
}
