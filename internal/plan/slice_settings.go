package plan

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
)

// SliceSettings are settings of a source that take precedence over those of the type of its tasks. A member without a
// value leaves the setting of the type in effect. The payload of each slice has a copy, which the worker applies.
type SliceSettings struct {
	Timeout       *Duration         `json:"timeout,omitempty"` // maximum duration of one attempt; 0 means no maximum
	RetryStrategy holdfast.Strategy `json:"retry_strategy,omitempty"`
	RetryBase     *Duration         `json:"retry_base,omitempty"`
	RetryMax      *Duration         `json:"retry_max,omitempty"` // maximum delay before jitter; 0 means no maximum
}

// slicePayload is the payload of a slice. The member settings is missing if the source has no SliceSettings.
type slicePayload struct {
	Slice
	Settings SliceSettings `json:"settings,omitzero"`
}

// Over returns the settings of s, with those of other where s has none.
func (s SliceSettings) Over(other SliceSettings) SliceSettings {
	return SliceSettings{
		first(s.Timeout, other.Timeout), cmp.Or(s.RetryStrategy, other.RetryStrategy), first(s.RetryBase, other.RetryBase), first(s.RetryMax, other.RetryMax),
	}
}

// validate returns an ErrInvalid that describes the first problem, or nil. partial allows that the strategy of a base is
// missing.
func (s SliceSettings) validate(partial bool) error {
	switch s.RetryStrategy {
	case "", holdfast.Exponential, holdfast.Linear, holdfast.Fixed:
	default:
		return invalid("the retry strategy %.100q of a source must be %s, %s or %s; only a type can have a list of delays",
			s.RetryStrategy, holdfast.Exponential, holdfast.Linear, holdfast.Fixed)
	}
	if s.RetryBase != nil && *s.RetryBase == 0 && s.RetryStrategy != holdfast.Fixed && !(partial && s.RetryStrategy == "") {
		return invalid("the retry base 0s needs the retry strategy %s, in the source or in default", holdfast.Fixed)
	}
	check := func(name string, d *Duration) error {
		if d == nil {
			return nil
		}
		return holdfast.CheckDuration(name, time.Duration(*d))
	}
	return cmp.Or(check("the timeout", s.Timeout), check("the retry base", s.RetryBase), check("the longest delay", s.RetryMax))
}

// TaskSettings returns the settings for a task, given those of its type. If the task is a slice whose source had
// settings of its own when it was stored, they take precedence. Members that this build does not know have no effect,
// and neither do settings that are not valid. TaskSettings reads the payload only of slices, and does not change t.
func TaskSettings(t *holdfast.TypeSettings, task *holdfast.Task) *holdfast.TypeSettings {
	if !strings.HasPrefix(task.Unique, slicePrefix) {
		return t
	}
	var payload struct {
		Settings SliceSettings `json:"settings"`
	}
	if json.Unmarshal(task.Payload, &payload) != nil || payload.Settings == (SliceSettings{}) || payload.Settings.validate(true) != nil {
		return t
	}
	return payload.Settings.apply(t)
}

// apply returns t with the settings of a source.
func (s SliceSettings) apply(t *holdfast.TypeSettings) *holdfast.TypeSettings {
	changed, standard := *t, holdfast.DefaultPolicy()
	p := &changed.Policy
	set(&changed.Timeout, s.Timeout)
	set(&p.Base, s.RetryBase)
	set(&p.Max, s.RetryMax)
	if s.RetryStrategy != "" { // the type may have another strategy, and so no value for this one
		p.Strategy = s.RetryStrategy
		if p.Factor < 1 {
			p.Factor = standard.Factor
		}
		if p.Base == 0 && p.Strategy != holdfast.Fixed {
			p.Base = standard.Base
		}
	}
	if p.Validate() != nil {
		changed.Policy = t.Policy
	}
	return &changed
}

// set sets a duration, if there is a value.
func set(to *time.Duration, value *Duration) {
	if value != nil {
		*to = time.Duration(*value)
	}
}
