package surface

import (
	"context"
	"maps"
	"slices"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
)

// SettingsQuery is a request for the task settings.
type SettingsQuery struct {
	All bool `query:"all" flag:"-" doc:"Include built-in defaults and inherited values."`
}

// Settings are the task settings that are in effect.
type Settings struct {
	Version  int64           `json:"version" doc:"Changes with each change of a stored setting."`
	Settings []configs.Entry `json:"settings" doc:"The origin \"store\" is a setting that a person has set."`
	Ignored  []Ignored       `json:"ignored" doc:"Stored settings without effect in this process."`
}

// Ignored is a stored setting without effect in this process.
type Ignored struct {
	Key     string `json:"key"`
	Problem string `json:"problem"`
}

// SettingsOf returns the JSON form of settings. If all is set, it includes the built-in defaults.
func SettingsOf(s app.EffectiveSettings, all bool) Settings {
	ignored := Each(s.Ignored, func(problem *configs.Error) Ignored { return Ignored{problem.Key, problem.Problem} })
	return Settings{s.Version, s.Config.TaskEntries(all), ignored}
}

// SettingDifference is a stored setting that differs from the configuration of this process.
type SettingDifference struct {
	Key        string `json:"key"`
	Stored     string `json:"stored"`
	Configured string `json:"configured"` // "" if this build does not know the key
	Origin     string `json:"origin"`     // of the configured value
	Ignored    string `json:"ignored,omitempty"`
}

// SettingDifferences returns the stored settings that differ from the configuration, or have no effect with it.
func SettingDifferences(ctx context.Context, b *app.Backend) ([]SettingDifference, error) {
	now, err := b.ReadSettings(ctx)
	if err != nil {
		return nil, err
	}
	problems := make(map[string]string)
	for _, problem := range now.Ignored {
		problems[problem.Key] = problem.Problem
	}
	differences := []SettingDifference{}
	for _, key := range slices.Sorted(maps.Keys(now.Values)) {
		d := SettingDifference{Key: key, Stored: now.Values[key], Ignored: problems[key]}
		if entry, err := b.Config.TaskEntry(key); err == nil {
			d.Configured, d.Origin = entry.Value, entry.Origin
		}
		if effective, err := now.Config.TaskEntry(key); err == nil && effective.Origin != configs.StoreOrigin && d.Ignored == "" {
			d.Ignored = "is not valid together with other settings"
		}
		if d.Ignored != "" || d.Stored != d.Configured {
			differences = append(differences, d)
		}
	}
	return differences, nil
}
