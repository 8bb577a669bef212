#!/usr/bin/env bash
# PrairieLearn runs this for each submission, without a network.
cd /grade/tests
exec gpulab grade /grade/student --for prairielearn --exercises exercises --timeout @LIMIT_S@
