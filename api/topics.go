package api

import (
	"context"
	"errors"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// A topic may have slashes and any other characters except control characters. Proxies change such characters in paths,
// so the routes take a topic as a parameter or in the body.

// topicsQuery has the parameters of the list of topics.
type topicsQuery struct {
	Queue string `query:"queue" doc:"Only topics with open tasks in this queue."`
	Limit int    `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"At most so many items."`
	After string `query:"after" doc:"The value next of the page before."`
}

func (a *API) listTopics(ctx context.Context, in *topicsQuery) (surface.TopicPage, error) {
	page, err := surface.Topics(ctx, a.b, in.Queue, in.After, in.Limit)
	if errors.Is(err, holdfast.ErrInvalid) {
		return page, badParameter("after", err)
	}
	return page, err
}

// topicQuery has the parameter of the route about one topic.
type topicQuery struct {
	Topic string `query:"topic" required:"true" doc:"The topic."`
}

func (a *API) getTopic(ctx context.Context, in *topicQuery) (store.TopicProgress, error) {
	if err := holdfast.CheckTopic(in.Topic); err != nil {
		return store.TopicProgress{}, badParameter("topic", err)
	}
	return a.b.Store.TopicProgress(ctx, in.Topic)
}

// topicWeights is a list of weights.
type topicWeights struct {
	Weights []store.TopicWeight `json:"weights"`
}

// weightQuery has the parameter of the list of weights.
type weightQuery struct {
	Limit int `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"At most so many weights."`
}

func (a *API) listTopicWeights(ctx context.Context, in *weightQuery) (topicWeights, error) {
	found, err := a.b.Store.TopicWeights(ctx, in.Limit)
	return topicWeights{append([]store.TopicWeight{}, found...)}, err
}

// newWeight is a request to set the weight of a topic.
type newWeight struct {
	Topic  string `json:"topic"`
	Weight int    `json:"weight" minimum:"1" maximum:"1000" doc:"1 is the weight of all topics without one."`
	Reason string `json:"reason,omitempty" doc:"Why, for the audit log."`
}

func (a *API) setTopicWeight(ctx context.Context, in *RawJSON) (surface.WeightChange, error) {
	var request newWeight
	if err := decode(in.RawBody, &request); err != nil {
		return surface.WeightChange{}, err
	}
	return surface.SetTopicWeight(ctx, a.b, actor(ctx, request.Reason), store.TopicWeight{Topic: request.Topic, Weight: request.Weight})
}
