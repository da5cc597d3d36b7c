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
	"github.com/holdfastq/holdfast/internal/surface"
)

// config is a list of all settings of this process.
type config struct {
	Settings []configs.Entry `json:"settings"`
}

func (a *API) getConfig(context.Context, *struct{}) (config, error) {
	return config{a.b.Config.Entries()}, nil
}

// settingsTag returns the entity tag of the stored settings.
func settingsTag(version int64) string { return fmt.Sprintf(`"%d"`, version) }

// settingsQuery has the parameters of the list of task settings.
type settingsQuery struct {
	All bool `query:"all" doc:"Include built-in defaults and inherited values."`
}

func (a *API) listSettings(ctx context.Context, in *settingsQuery) (*tagged[surface.Settings], error) {
	now, err := a.b.ReadSettings(ctx)
	return &tagged[surface.Settings]{settingsTag(now.Version), surface.NewSettings(now, in.All)}, err
}

// settingsChange has the parameters of the routes that change stored settings.
type settingsChange struct {
	IfMatch string `header:"If-Match" doc:"Change the settings only if they still have this entity tag."`
	Reason  string `query:"reason" doc:"Why, for the audit log."`
	RawBody []byte `contentType:"application/json"`
}

// check returns the problem of a version that If-Match does not name.
func (in *settingsChange) check(version int64) error {
	if !matches(in.IfMatch, settingsTag(version)) {
		return changed("the settings have changed: they now have the entity tag %s", settingsTag(version))
	}
	return nil
}

// settingsPatch has values by key; null removes a stored setting.
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

func (a *API) changeSettings(ctx context.Context, in *settingsChange) (*tagged[surface.Settings], error) {
	var patch settingsPatch
	if err := decode(in.RawBody, &patch); err != nil {
		return nil, err
	}
	if len(patch) == 0 {
		return nil, newProblem(http.StatusUnprocessableEntity, "invalid_body", `the body must have settings, such as {"types.http.retry.base": "5s"}`)
	}
	r := app.SettingsRequest{Set: make(map[string]string), Check: in.check}
	for key, value := range patch {
		if value == nil {
			r.Unset = append(r.Unset, key)
		} else {
			r.Set[key] = *value
		}
	}
	slices.Sort(r.Unset)
	after, err := a.b.ChangeSettings(ctx, actor(ctx, in.Reason), r)
	return &tagged[surface.Settings]{settingsTag(after.Version), surface.NewSettings(after, false)}, err
}

// settingKey names a setting.
type settingKey struct {
	Key string `json:"key" doc:"The key of a task setting, such as types.http.retry.base."`
}

func (a *API) undoSetting(ctx context.Context, in *settingsChange) (*tagged[surface.Settings], error) {
	var body settingKey
	if err := decode(in.RawBody, &body); err != nil {
		return nil, err
	}
	after, err := a.b.UndoSetting(ctx, actor(ctx, in.Reason), body.Key, in.check)
	return &tagged[surface.Settings]{settingsTag(after.Version), surface.NewSettings(after, false)}, err
}
