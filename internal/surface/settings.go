package surface

import (
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
)

// SettingsQuery is a request for the task settings.
type SettingsQuery struct {
	All bool `query:"all" flag:"-" doc:"Include built-in defaults and inherited values."`
}

// Settings is the task settings that are in effect.
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

// SettingsOf returns the form of settings. With all, it has the built-in defaults too.
func SettingsOf(s app.EffectiveSettings, all bool) Settings {
	ignored := Each(s.Ignored, func(problem *configs.Error) Ignored { return Ignored{problem.Key, problem.Problem} })
	return Settings{s.Version, s.Config.TaskEntries(all), ignored}
}
