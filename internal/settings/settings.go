// Package settings gives the services of a process their task settings. People change these settings in the store while
// the process runs.
//
// A [Source] keeps the stored settings in memory and reads them again each second. [Source.Over] merges them with the
// configuration of a process. While the store is unreachable, the last settings remain in effect.
package settings

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/store"
)

const (
	// every is the time between two reads of the version. Every process must see a change within 2 s.
	every = time.Second
	// readTimeout limits one read, so that a connection that does not answer does not delay the next read.
	readTimeout = 2 * time.Second
)

// Store is the part of a store that a Source reads.
type Store interface {
	StoredSettings(ctx context.Context, known int64) (store.StoredSettings, error)
}

// Source has the stored settings that this process read last. It is safe for concurrent use.
type Source struct {
	store   Store
	log     logrus.FieldLogger
	current atomic.Pointer[store.StoredSettings] // nil before the first read

	mu     sync.Mutex
	warned map[string]bool // problems that have been logged
}

// New returns a Source without stored settings. It starts no goroutine. log may be nil.
func New(s Store, log logrus.FieldLogger) *Source {
	return &Source{store: s, log: logs.Limited(log), warned: make(map[string]bool)}
}

// Refresh reads the stored settings if their version has changed.
func (s *Source) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	known, seen := int64(-1), s.current.Load()
	if seen != nil {
		known = seen.Version
	}
	stored, err := s.store.StoredSettings(ctx, known)
	if err != nil || stored.Version == known {
		return err
	}
	s.current.Store(&stored)
	if seen != nil {
		s.log.WithField("keys", difference(seen.Values, stored.Values)).Info("settings changed in the store")
	}
	return nil
}

// difference returns the keys whose values differ.
func difference(before, after map[string]string) []string {
	keys := make(map[string]string)
	maps.Copy(keys, before)
	maps.Copy(keys, after)
	maps.DeleteFunc(keys, func(key, _ string) bool {
		was, had := before[key]
		is, has := after[key]
		return had && has && was == is
	})
	return slices.Sorted(maps.Keys(keys))
}

// Run refreshes the source each second until ctx is done. It returns nil when everything that it started has ended.
func (s *Source) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.Refresh(ctx); err != nil && ctx.Err() == nil {
			s.log.WithError(err).Debug("settings not read from the store, trying again")
		}
	}
}

// Over returns the task settings of a configuration merged with the stored ones; see configs.Config.WithStored. It logs
// once each stored setting that has no effect.
func (s *Source) Over(base configs.Config) holdfast.SettingsSource {
	return &view{source: s, base: base}
}

// view has the settings for one configuration.
type view struct {
	source *Source
	base   configs.Config
	joined atomic.Pointer[joined]
}

// joined is a configuration merged with stored settings. Each value is the result of holdfast.Settings.For, because For
// is called several times for each task.
type joined struct {
	stored   *store.StoredSettings
	defaults *holdfast.TypeSettings
	types    map[string]*holdfast.TypeSettings
}

func newJoined(stored *store.StoredSettings, settings holdfast.Settings) *joined {
	j := &joined{stored, settings.For(""), make(map[string]*holdfast.TypeSettings, len(settings.Types))}
	for name := range settings.Types {
		j.types[name] = settings.For(name)
	}
	return j
}

// For implements holdfast.SettingsSource. It merges the settings again only after a change.
func (v *view) For(taskType string) *holdfast.TypeSettings {
	stored, known := v.source.current.Load(), v.joined.Load()
	if known == nil || known.stored != stored {
		known = v.join(stored)
		v.joined.Store(known)
	}
	if of := known.types[taskType]; of != nil {
		return of
	}
	return known.defaults
}

func (v *view) join(stored *store.StoredSettings) *joined {
	if stored == nil {
		return newJoined(nil, v.base.Settings())
	}
	merged, ignored := v.base.WithStored(stored.Values)
	for _, problem := range ignored {
		v.source.warn(problem)
	}
	return newJoined(stored, merged.Settings())
}

// warn logs a stored setting that has no effect, unless it has been logged before.
func (s *Source) warn(problem *configs.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := problem.Error(); !s.warned[text] {
		s.warned[text] = true
		s.log.WithFields(logrus.Fields{"key": problem.Key, "problem": problem.Problem}).Warn("stored setting ignored")
	}
}
