package surface

import (
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
)

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

// NewSettings returns the form of settings. With all, it has the built-in defaults too.
func NewSettings(s app.EffectiveSettings, all bool) Settings {
	form := Settings{Version: s.Version, Settings: s.Config.TaskEntries(all), Ignored: []Ignored{}}
	for _, problem := range s.Ignored {
		form.Ignored = append(form.Ignored, Ignored{problem.Key, problem.Problem})
	}
	return form
}
